"""Shows results and comparisons as text for a terminal and as one HTML page that needs nothing else."""

from collections.abc import Iterable, Iterator
from html import escape

from simulator.threadbench.results import Comparison, EvalResult, TaskResult

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1d1c1d; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.passed { color: #0a6b3d; } .failed { color: #b3261e; }
pre { white-space: pre-wrap; background: #f6f6f6; padding: .6rem; }
"""
Row = tuple[str, ...]


def summary_lines(result: EvalResult) -> Iterator[str]:
    """Yields the totals of a result, one line each, after a line for each task that failed."""
    for task in result.tasks:
        for problem in dict.fromkeys(one for attempt in task.attempts for one in attempt.problems):
            yield f"failed  {task.name}: {problem}"
    yield f"{result.subject}: {', '.join(_totals(result))}"


def result_page(result: EvalResult) -> str:
    """Returns the result as an HTML page."""
    k = result.attempts_each
    header = ("task", "area", "pass@1", f"pass@{k}", "turns", "tokens", "dollars", "seconds")
    areas = ((area, _percent(result.pass_at(1, area)), _percent(result.pass_at(k, area))) for area in result.areas)
    return _page(
        result.subject,
        f"<p>{escape(', '.join(_totals(result)))}. Started {escape(result.started_at)}.</p>",
        _table(("area", "pass@1", f"pass@{k}"), areas, texts=1),
        _table(header, (_task_row(task, k) for task in result.tasks), texts=2),
        *map(_details, result.tasks),
    )


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    yield f"from {comparison.before.subject} to {comparison.after.subject}"
    yield from ("  ".join(row) for row in _difference_rows(comparison))
    yield f"better: {', '.join(comparison.better) or 'none'}"
    yield f"worse: {', '.join(comparison.worse) or 'none'}"


def comparison_page(comparison: Comparison) -> str:
    """Returns the comparison as an HTML page."""
    before, after = comparison.before, comparison.after
    names = {task.name: task for task in before.tasks}
    rows = (
        (
            task.name,
            task.area,
            _percent(names[task.name].pass_at(1)),
            _percent(task.pass_at(1)),
            f"{_average(names[task.name], 'usd'):.4f}",
            f"{_average(task, 'usd'):.4f}",
        )
        for task in after.tasks
        if task.name in names
    )
    return _page(
        f"{before.subject} and {after.subject}",
        _table(
            ("figure per task", "before", "after", "change", "95 % interval", ""), _difference_rows(comparison), texts=1
        ),
        f"<p>Better: {escape(', '.join(comparison.better) or 'none')}.<br>"
        f"Worse: {escape(', '.join(comparison.worse) or 'none')}.</p>",
        _table(("task", "area", "pass@1 before", "after", "dollars before", "after"), rows, texts=2),
    )


def _totals(result: EvalResult) -> Iterator[str]:
    k = result.attempts_each
    passed = sum(task.pass_at(1) == 1 for task in result.tasks)
    yield f"{passed} of {len(result.tasks)} tasks passed"
    yield f"pass@1 {_percent(result.pass_at(1))}"
    if k > 1:
        yield f"pass@{k} {_percent(result.pass_at(k))}"
    yield f"{result.total(lambda one: one.turns):.0f} turns"
    yield f"{result.total(lambda one: one.input_tokens + one.output_tokens):,.0f} tokens"
    yield f"{result.total(lambda one: one.usd):.4f} US dollars"
    yield f"{result.seconds:.0f} s"


def _task_row(task: TaskResult, k: int) -> Row:
    tokens = _average(task, "input_tokens") + _average(task, "output_tokens")
    return (
        task.name,
        task.area,
        _percent(task.pass_at(1)),
        _percent(task.pass_at(k)),
        f"{_average(task, 'turns'):.1f}",
        f"{tokens:,.0f}",
        f"{_average(task, 'usd'):.4f}",
        f"{_average(task, 'seconds'):.1f}",
    )


def _difference_rows(comparison: Comparison) -> Iterator[Row]:
    for one in comparison.differences:
        yield (
            one.name,
            f"{one.before:.4g}",
            f"{one.after:.4g}",
            f"{one.after - one.before:+.4g}",
            f"{one.low:+.4g} to {one.high:+.4g}",
            "sure" if one.is_sure else "may be chance",
        )


def _details(task: TaskResult) -> str:
    shown = [f"<h2>{escape(task.name)}</h2><p>{escape(task.title)}</p>"]
    for number, attempt in enumerate(task.attempts, start=1):
        verdict = "passed" if attempt.passed else "failed"
        problems = "".join(f"<li>{escape(one)}</li>" for one in attempt.problems)
        shown.append(
            f'<details><summary class="{verdict}">attempt {number} {verdict}</summary>'
            f"<ul>{problems}</ul><pre>{escape(attempt.transcript)}</pre></details>"
        )
    return "".join(shown)


def _average(task: TaskResult, figure: str) -> float:
    return sum(getattr(one, figure) for one in task.attempts) / max(1, len(task.attempts))


def _percent(share: float) -> str:
    return f"{share:.0%}"


def _table(header: Row, rows: Iterable[Row], *, texts: int) -> str:
    """Returns a table; its first `texts` columns are texts, the others numbers."""

    def line(cells: Row, tag: str) -> str:
        kinds = ("" if at < texts else ' class="number"' for at in range(len(cells)))
        inside = (f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
        return f"<tr>{''.join(inside)}</tr>"

    return f"<table>{line(header, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


def _page(title: str, *parts: str) -> str:
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return (
        f'<!doctype html><html lang="en"><head>{head}</head><body><h1>{escape(title)}</h1>'
        f"{''.join(parts)}</body></html>\n"
    )
