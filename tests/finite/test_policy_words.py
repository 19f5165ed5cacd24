"""Policies in words: thresholds, randomised states, large models, names."""

from __future__ import annotations

import json

import numpy as np
import pytest

import clearance as cl
from clearance.cli import main
from clearance.finite.policy_words import describe_policy, describe_table, list_policy


def table(acts: list[int], A: int = 3) -> np.ndarray:
    return np.eye(A)[acts]


def all_of(pi: np.ndarray) -> np.ndarray:
    return np.ones(len(pi), bool)


def test_the_optimum_of_a_queue_is_a_threshold_policy_with_one_randomised_state() -> None:
    model = cl.zoo.queue_power()
    threshold, random = describe_policy(model, cl.Mixture.single(cl.optimum(model).policy), model.states, model.actions)
    assert threshold.startswith("Threshold policy: rate-0.2 in queue 0, rate-0.4 in queue 1 to 3, rate-0.6 in queue 4")
    assert random.startswith("It randomises in 1 of 51 states: queue 12 (rate-0.8 with 0.729")


def test_one_action_everywhere() -> None:
    pi = table([2, 2, 2])
    assert describe_table(pi, all_of(pi)) == ["Action 2 in every state that it visits.", "It never randomises."]


def test_an_action_that_comes_back_is_no_threshold() -> None:
    pi = table([0, 0, 1, 1, 0, 0])
    assert (
        describe_table(pi, all_of(pi))[0]
        == "Action 0 in states 0 to 1, action 1 in states 2 to 3, action 0 in states 4 to 5."
    )


def test_large_policies_are_counted() -> None:
    acts = np.zeros(2025, int)
    acts[::45] = 1
    first, random = describe_table(np.eye(2)[acts], np.ones(2025, bool))
    assert first == "Same action (action 0) in 1,980 of 2,025 states; action 1 in 45." and "never" in random


def test_states_that_are_never_visited_do_not_break_a_threshold() -> None:
    pi, visited = table([0, 2, 0, 1, 1]), np.array([True, False, True, True, True])
    first, _, never = describe_table(pi, visited)
    assert first == "Threshold policy: action 0 in states 0 to 2, action 1 in states 3 to 4."
    assert never == "Never visited: state 1."


def test_names_are_used_and_escaped() -> None:
    pi = np.array([[1.0, 0.0], [1.0, 0.0], [0.25, 0.75], [0.0, 1.0], [0.0, 1.0]])
    first, random = describe_table(pi, all_of(pi), ["new", "good", "worn", "bad", "ri\x1bsky"], ["run", "repair"])
    assert first == "Threshold policy: run in new and good, repair in bad and ri\\x1bsky."
    assert random == "It randomises in 1 of 5 states: worn (repair with 0.75, run with 0.25)."


def test_a_range_ends_at_a_randomised_state_that_mostly_takes_another_action() -> None:
    """Wear 2 is most often serviced, so "fast in wear 1 to 4" and "threshold policy" would be wrong."""
    names = (["wear 0", "wear 1", "wear 2", "wear 3", "wear 4", "down"], ["slow", "fast", "service"])
    pi = table([0, 1, 1, 1, 1, 0])
    pi[0], pi[2] = [0.25, 0.75, 0.0], [0.0, 0.1, 0.9]
    first, random = describe_table(pi, all_of(pi), *names)
    assert first == "Fast in wear 1, fast in wear 3 to 4, slow in down." and "wear 2 (service with 0.9" in random
    pi[2] = [0.0, 0.9, 0.1]
    assert describe_table(pi, all_of(pi), *names)[0] == "Threshold policy: fast in wear 1 to 4, slow in down."
    pi[5], pi[0] = [0.0, 0.0, 1.0], [0.0, 0.25, 0.75]  # service, then fast, then service again
    assert describe_table(pi, all_of(pi), *names)[0] == "Fast in wear 1 to 4, service in down."


def test_names_without_numbers_are_listed_and_never_stand_for_others() -> None:
    """A range of names would seem to contain `bad`, which is never visited."""
    pi, visited = table([1, 0, 0, 2, 0]), np.array([True, True, True, False, True])
    first, _, never = describe_table(pi, visited, ["new", "used", "worn", "bad", "off"], ["fast", "slow", "fix"])
    assert first == "Threshold policy: slow in new, fast in used, worn and off." and never == "Never visited: bad."
    first, _ = describe_table(table([0] * 9 + [1]), np.ones(10, bool), list("abcdefghij"))
    assert first == "Threshold policy: action 0 in 9 states, a to i, action 1 in j."


def test_few_states_with_an_action_each_are_named() -> None:
    visited = np.array([True, True, False, False, False, False, False, False])
    lines = describe_table(table([1, 2, 0, 0, 0, 0, 0, 0]), visited, list("abcdefgh"), ["fast", "slow", "fix"])
    assert lines == ["Slow in a, fix in b.", "It never randomises.", "Never visited: 6 of 8 states."]


def test_many_randomised_states_and_components_are_cut() -> None:
    pi = np.full((20, 2), 0.5)
    (words,) = describe_table(pi, all_of(pi))
    assert words.startswith("It randomises in 20 of 20 states: state 0 (") and words.endswith("; and 15 more.")
    model = cl.zoo.two_state()
    mixture = cl.Mixture.uniform(np.repeat(cl.optimum(model).policy[None], 9, axis=0))
    lines = describe_policy(model, mixture)
    assert lines[0].startswith("Component 1 of 9 (weight 0.1111): ") and lines[-1] == "And 6 more components."


def test_rounding_does_not_make_a_policy_random() -> None:
    pi = np.array([[1 - 1e-9, 1e-9], [1.0, 0.0]])
    assert describe_table(pi, all_of(pi))[1] == "It never randomises."


def test_all_of_the_policy() -> None:
    mixture = cl.Mixture.single([[0.25, 0.75], [1.0, 0.0]])
    rows = list_policy(mixture, ["a", "b"], ["stay", "go"])
    assert [(r["state"], r["action"], r["probability"]) for r in rows] == [
        ("a", "stay", 0.25),
        ("a", "go", 0.75),
        ("b", "stay", 1.0),
    ]


@pytest.mark.parametrize("words", [["optimum", "inventory"], ["solve", "inventory", "--K", "50"]])
def test_commands_show_the_policy(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    main(words)
    assert "It randomises in" in capsys.readouterr().out
    main([*words, "--show-policy", "--json"])
    said = json.loads(capsys.readouterr().out)
    total = sum(row["probability"] for row in said["policy"])
    assert said["policy_words"] and total == pytest.approx(6 * (1 + said["policy"][-1]["component"]))
    main([*words, "--show-policy"])
    assert ["state", "action", "probability"] in [line.split() for line in capsys.readouterr().out.splitlines()]
