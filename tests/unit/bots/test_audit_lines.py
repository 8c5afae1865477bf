"""How an entry of the audit log, and feedback, read on the operator's terminal."""

from datetime import UTC, datetime

from bots.inbound.commands.admin import format_audit_entry, format_feedback
from core.domain.audit import AuditEntry
from core.domain.threads import Address, Person
from core.stores import Feedback


def entry(name: str, subject: str) -> AuditEntry:
    return AuditEntry(
        action="knowledge_changed",
        actor=Person(person_id="U1", name=name),
        address=Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0"),
        subject=subject,
        happened_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
    )


def test_an_entry_is_one_line() -> None:
    told = format_audit_entry(entry("Eve\nMallory", "add a.csv"))
    assert told == ("2026-03-01 12:00:00 UTC Eve Mallory (U1) changed what is known: add a.csv  slack/T1/C1")


def test_names_of_people_and_files_do_nothing_to_a_terminal() -> None:
    told = format_audit_entry(entry("Eve\x1b[2K\u202e\x9b1A", "add \x1b]0;title\x07.csv"))
    assert "Eve[2K1A (U1)" in told
    assert told.endswith("add ]0;title.csv  slack/T1/C1")


def test_feedback_is_one_line_with_the_words_of_the_request() -> None:
    given = Feedback(
        run_id="r1",
        thread_id="t1",
        person=Person(person_id="U1", name="Eve\x1b[2K"),
        is_good=False,
        reason="too\n\x1blong",
        request="Sum up\n the table",
        given_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
    )
    assert format_feedback(given) == "2026-03-01 12:00 bad  Eve[2K (U1) thread t1 “Sum up the table”: too long"
