"""The replay of logs: it accepts what can be explained, and nothing else."""

from __future__ import annotations

from tests.support.models.sequential import Call, Verb
from tests.support.soak_checker import BROKEN, READ, Killed, check_history, windows


def call(verb: Verb, started: int, ended: int, answer: str = "ok", data: int | None = None) -> Call:
    return Call(verb, data, started, ended, answer)


def killed(verb: Verb, started: int, settled_by: int, data: int | None = None) -> Killed:
    return Killed(Call(verb, data, started, None, None), settled_by)


def is_accepted(*calls: Call, dead: tuple[Killed, ...] = ()) -> bool:
    verdict = check_history(calls, dead)
    assert verdict.unchecked == 0
    return not verdict.violations


def test_history_is_split_where_no_call_is_in_progress() -> None:
    first, beside, later = call(Verb.CREATE, 1, 5), call(Verb.DROP, 4, 9), call(Verb.PURGE, 9, 12)
    assert windows([later, first, beside]) == [[first, beside], [later]]


def test_sequential_calls_are_accepted() -> None:
    assert is_accepted(
        call(Verb.CREATE, 1, 2, data=7),
        call(READ, 3, 4, data=7),
        call(Verb.DROP, 5, 6),
        call(READ, 7, 8, "TableNotFoundError"),
        call(Verb.UNDROP, 9, 10),
        call(READ, 11, 12, data=7),
        call(Verb.DROP, 13, 14),
        call(Verb.PURGE, 15, 16),
        call(Verb.UNDROP, 17, 18, "TableNotFoundError"),
    )


def test_lost_acknowledged_create_is_detected() -> None:
    assert not is_accepted(call(Verb.CREATE, 1, 2, data=7), call(READ, 3, 4, "TableNotFoundError"))


def test_lost_acknowledged_drop_is_detected() -> None:
    assert not is_accepted(call(Verb.CREATE, 1, 2, data=7), call(Verb.DROP, 3, 4), call(READ, 5, 6, data=7))


def test_old_rows_after_an_overwrite_are_detected() -> None:
    assert not is_accepted(
        call(Verb.CREATE, 1, 2, data=7), call(Verb.OVERWRITE, 3, 4, data=8), call(READ, 5, 6, data=7)
    )


def test_two_successful_creates_are_detected() -> None:
    assert not is_accepted(call(Verb.CREATE, 1, 9, data=7), call(Verb.CREATE, 2, 8, data=8))


def test_unreadable_table_at_rest_is_detected() -> None:
    assert not is_accepted(call(Verb.CREATE, 1, 2, data=7), call(READ, 3, 4, BROKEN))


def test_undrop_after_a_purge_is_detected() -> None:
    assert not is_accepted(
        call(Verb.CREATE, 1, 2, data=7),
        call(Verb.DROP, 3, 4),
        call(Verb.PURGE, 5, 6),
        call(Verb.UNDROP, 7, 8),
    )


def test_concurrent_calls_may_take_effect_in_either_order() -> None:
    create = call(Verb.CREATE, 1, 2, data=7)
    drop, overwrite = call(Verb.DROP, 3, 9), call(Verb.OVERWRITE, 4, 8, data=8)
    assert is_accepted(create, drop, overwrite, call(READ, 10, 11, data=8))
    assert is_accepted(create, drop, overwrite, call(READ, 10, 11, "TableNotFoundError"))
    assert not is_accepted(create, drop, overwrite, call(READ, 10, 11, data=7))


def test_ambiguous_state_is_carried_over_to_the_next_window() -> None:
    """Both states are carried over the cut, and the second read contradicts the first."""
    calls = [
        call(Verb.CREATE, 1, 2, data=7),
        call(Verb.OVERWRITE, 3, 4, "ConcurrentModificationError", data=8),
        call(READ, 5, 6, data=8),
    ]
    assert is_accepted(*calls, call(READ, 7, 8, data=8))
    assert not is_accepted(*calls, call(READ, 7, 8, data=7))


def test_call_of_a_killed_process_may_take_effect_once_and_late() -> None:
    create, drop = call(Verb.CREATE, 1, 2, data=7), call(Verb.DROP, 3, 4)
    dead = (killed(Verb.CREATE, 5, 10, data=8),)
    hidden, shown = call(READ, 11, 12, "TableNotFoundError"), call(READ, 15, 16, data=8)
    assert is_accepted(
        create, drop, hidden, call(Verb.UNDROP, 13, 14, "TableAlreadyExistsError"), shown, dead=dead
    )
    assert is_accepted(create, drop, hidden, call(Verb.UNDROP, 13, 14), call(READ, 15, 16, data=7), dead=dead)
    assert not is_accepted(create, drop, hidden, call(Verb.UNDROP, 13, 14), shown, dead=dead)


def test_call_of_a_killed_process_has_no_effect_after_a_later_write() -> None:
    create, dead = call(Verb.CREATE, 1, 2, data=7), (killed(Verb.DROP, 3, 10),)
    settled = call(Verb.OVERWRITE, 11, 12, data=8)
    hidden = call(READ, 13, 14, "TableNotFoundError")
    assert is_accepted(create, hidden, dead=dead)
    assert not is_accepted(create, settled, hidden, dead=dead)


def test_read_during_a_change_is_not_checked() -> None:
    create, drop = call(Verb.CREATE, 1, 2, data=7), call(Verb.DROP, 3, 9)
    verdict = check_history([create, drop, call(READ, 4, 12, BROKEN)], [])
    assert (verdict.violations, verdict.loose_reads, verdict.checked) == ([], 1, 2)


def test_oversized_window_is_counted_and_the_replay_continues() -> None:
    crowd = [call(Verb.OVERWRITE, 1, 100, "ConcurrentModificationError", data=each) for each in range(30)]
    drop, hidden, shown = call(Verb.DROP, 101, 102), call(READ, 103, 104, "TableNotFoundError"), 5
    verdict = check_history([*crowd, drop, hidden], [])
    assert (verdict.unchecked, verdict.checked, verdict.violations) == (30, 2, [])
    assert check_history([*crowd, drop, call(READ, 103, 104, data=shown)], []).violations
