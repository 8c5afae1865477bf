"""The story told with sandboxes at Modal: against a simulated one where no account is set up."""

from pathlib import Path

from tests.integration.demo.test_headless import check_told, play

AT_MODAL = {"THREADHAND_SANDBOX": "modal"}


def test_the_story_is_told_at_a_simulated_modal(tmp_path: Path) -> None:
    ended = play(tmp_path, AT_MODAL)
    check_told(ended)
    assert ended.verdict["sandbox"] == "modal"
    assert any("simulated Modal" in line for line in ended.lines)
    assert ended.complaints == ""


def test_a_real_model_is_not_let_loose_in_a_simulated_modal(tmp_path: Path) -> None:
    ended = play(
        tmp_path,
        {
            **AT_MODAL,
            "THREADHAND_MODEL": "openai/some-model",
            "THREADHAND_LLM_BASE_URL": "http://127.0.0.1:1",
            "THREADHAND_LLM_API_KEY": "sk-for-the-test",
        },
    )
    assert ended.code == 2
    assert "MODAL_TOKEN_ID" in ended.complaints
