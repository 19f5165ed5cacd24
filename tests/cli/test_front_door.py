"""What a new user meets: the guide, help in groups, the zoo, questions about misspelt words, pages of 80 columns."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from documents import parse, split_words

import clearance as cl
from clearance.certificates.price_words import price_words, prices_in_words
from clearance.cli import command_line, guide, layout, main


def parsers() -> dict[str, Any]:
    return next(a for a in command_line._parser()._actions if a.dest == "command").choices  # type: ignore[return-value]


def test_without_arguments_there_is_a_guide(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    for command in re.findall(r"^  (clearance .*?)(?:  |$)", said, re.MULTILINE):
        parse(split_words(command)[1:])
    assert said.count("\n") <= 20 and max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("command", guide.COMMANDS)
def test_help_has_groups_examples_and_80_columns(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = parsers()[command].format_help()
    assert "basic:\n" in text and "optional arguments" not in text and max(map(len, text.splitlines())) <= 80
    assert guide.COMMANDS.keys() == guide.EXAMPLES.keys() and len(guide.EXAMPLES[command]) == 2
    for example in guide.EXAMPLES[command]:
        assert f"  {example}\n" in text
        parse(split_words(example)[1:])


def test_help_of_a_method_has_its_own_settings_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*words: str) -> str:
        with pytest.raises(SystemExit):
            main(["solve", *words, "--help"])
        return " ".join(capsys.readouterr().out.split())

    assert "--std_last" not in shown() and "--kappa" in shown() and "None" not in shown()
    assert "--std_last" in shown("--method", "practical-cnpgpd") and "--std_last" not in shown("--method", "crpo")
    assert "number of iterations (default: 1000)" in shown("--method", "crpo")
    assert main(["solve", "two-state", "--method", "crpo", "--K", "5", "--tolerance", "0.1", "--json"]) in (0, 4)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("sovle two-state", "solve"),
        ("solve two-state --kapa 1", "--kappa"),
        ("solve two-state --evidense=samples", "--evidence"),
        ("optimum taxii", "taxi"),
        ("solve two-state --method cnpgd", "cnpgpd"),
        ("frontier two-state --over kapa", "kappa"),
    ],
)
def test_a_misspelt_word_is_answered_by_a_question(capsys: pytest.CaptureFixture[str], words: str, meant: str) -> None:
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert f"did you mean {meant}?" in said and said.count("\n") == 1


def test_a_word_like_no_other_is_not_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimum", "zzzzzz"]) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_the_zoo_has_a_line_for_each_problem(capsys: pytest.CaptureFixture[str]) -> None:
    names = [*cl.zoo.MODELS, *cl.zoo.SIMULATORS]
    assert main(["zoo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.split("  ")[0] in names] == names
    assert max(map(len, lines)) <= 80 and cl.zoo.ABOUT.keys() == set(names)
    assert main(["zoo", "--json"]) == 0
    assert [p["name"] for p in json.loads(capsys.readouterr().out)["problems"]] == names


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize(
    "words",
    [
        "optimum harvesting",
        "optimum sutton-barto --show-policy",
        "solve two-state --K 50",
        "check harvesting",
        "frontier inventory --points 5",
        "compare two-state --methods npgpd,modelbased-lp --seeds 1 --budget 2e3 --K 20",
    ],
)
def test_pages_fit_and_no_number_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(words.split()) == 0
    narrow = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "1000")
    assert main(words.split()) == 0
    numbers = r"-?\d[\d,]*\.?\d*(?:e-?\d+)?"
    wide = capsys.readouterr().out
    assert max(map(len, narrow.splitlines())) <= width
    seconds = re.compile(r"seconds.*")
    assert sorted(re.findall(numbers, seconds.sub("", narrow))) == sorted(re.findall(numbers, seconds.sub("", wide)))


def test_people_read_six_digits_and_programs_all(capsys: pytest.CaptureFixture[str]) -> None:
    main(["optimum", "inventory"])
    assert re.search(r"reward J_r +67\.6665\n", capsys.readouterr().out)
    main(["optimum", "inventory", "--json"])
    assert json.loads(capsys.readouterr().out)["J_r"] == cl.optimum(cl.zoo.inventory()).J_r


def test_blocks_have_every_cell() -> None:
    heads, rows = ["name", "a", "long head"], [["x", "1", "2"], ["y", "3", "4"]]
    assert layout.lay_out(heads, rows, 12) == [
        "x", "  a          1", "  long head  2", "y", "  a          3", "  long head  4"
    ]  # fmt: skip


def test_weights_of_a_conflict_are_no_prices(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    model = cl.zoo.inventory()
    model.replace(limit=-1.0).save(tmp_path / "m.npz")
    assert main(["optimum", str(tmp_path / "m.npz"), "--json"]) == 3
    said = json.loads(capsys.readouterr().out)
    assert said["lam"] is None and sum(said["conflict_weights"]) > 0
    assert main(["optimum", str(tmp_path / "m.npz")]) == 3
    assert "price" not in capsys.readouterr().out


def test_the_price_of_a_limit_is_true() -> None:
    """Tightening costs at least λ, loosening gains at most λ: on either kind of limit, whatever the step."""
    for model, i in ((cl.zoo.inventory(), 0), (cl.zoo.sutton_barto(), 1), (cl.zoo.harvesting(), 0)):
        best, scale = cl.optimum(model), abs(model.b[i]) or 1.0
        for step in (0.01 * scale, 0.05 * scale):
            tighter, looser = model.b.copy(), model.b.copy()
            tighter[i], looser[i] = model.b[i] + step, model.b[i] - step
            cost = best.J_r - cl.optimum(model.replace(b=tighter)).J_r
            gain = cl.optimum(model.replace(b=looser)).J_r - best.J_r
            assert cost >= best.lam[i] * step - 1e-6 and gain <= best.lam[i] * step + 1e-6
    assert price_words("heat", 2.0, cost=True).startswith("heat: at the margin, lowering this limit by one unit costs")
    assert price_words("heat", 2.0, cost=False).startswith("heat: at the margin, raising this limit by one unit costs")
    assert prices_in_words({"lam": [1.0], "evidence": "samples", "names": ["a"], "costs": [True]}) == []


def test_a_limit_of_zero_cannot_be_lowered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimum", "inventory", "--limit", "lost sales=0"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "lost sales: at the margin, raising this limit by one unit gains at most 545.5." in text
    assert "lowering" not in text
    main(["optimum", "inventory", "--limit", "lost sales=0.1"])
    assert "lowering this limit by one unit costs at least" in " ".join(capsys.readouterr().out.split())


def test_rounding_is_no_relaxed_limit(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["optimum", "inventory", "--limit", "lost sales=-1"]
    assert main(words) == 3
    out = capsys.readouterr().out
    assert re.search(r"lost sales +≤ -1 +yes +1\.00001 +≤ 0\n", out) and "e-" not in out
    assert main([*words, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["relax_all"] > 1
