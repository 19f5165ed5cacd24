"""Three models of the PRISM suite and Storm's tests: our constrained optimum against Storm's, in rational arithmetic.

Storm maximises a total reward under bounds on others (Etessami et al. 2008; Forejt et al. 2011). A module beside the
others ends the process with probability 1 − γ in every step, so that total rewards are discounted sums.

Storm's answers are kept in tests/data/storm, so that the comparison is made everywhere; where stormpy is installed
(pip install '.[storm]') the slow test asks Storm again. `python tests/exchange/test_storm.py` writes them anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import clearance as cl

STORM = Path(__file__).resolve().parents[1] / "data/storm"
PRECISION = "1/1000000000000"  # of Storm's approximation of the Pareto curve, in exact arithmetic


class Question(NamedTuple):
    """A constrained problem, for us and for Storm."""

    gamma: str
    reward: str
    limits: Mapping[str, str]
    b: Mapping[str, str] = {}

    def property(self) -> str:
        least = self.reward.startswith("-")
        what = f'R{{"{self.reward.lstrip("-")}"}}{"min" if least else "max"}=? [C]'
        bounds = [f'R{{"{name}"}}<={x} [C]' for name, x in self.limits.items()]
        bounds += [f'R{{"{name}"}}>={x} [C]' for name, x in self.b.items()]
        return f"multi({', '.join([what, *bounds])})"

    def model(self, file: Path) -> cl.CMDP:
        numbers = ({name: float(Fraction(x)) for name, x in of.items()} for of in (self.limits, self.b))
        limits, b = numbers
        return cl.load_model(file, gamma=float(Fraction(self.gamma)), reward=self.reward, limits=limits, b=b)


QUESTIONS = {
    "task_graph": [
        Question("19/20", "-time", {"energy": "700"}),
        Question("99/100", "-energy", {"time": "13"}),
        Question("19/20", "-time", {"energy": "500"}),  # cannot be met
    ],
    "resource_gathering": [
        Question("99/100", "gold", {"attacks": "1/2"}, {"gems": "2"}),
        Question("9/10", "gems", {"attacks": "1/20"}, {"gold": "1/20"}),
        Question("9/10", "gold", {"attacks": "3/25"}, {"gems": "3/10"}),  # cannot be met
    ],
    "shared_coin": [
        Question("49/50", "disagreement", {"flips": "47/5"}),
        Question("199/200", "disagreement", {"flips": "14"}),
        Question("49/50", "disagreement", {"flips": "8"}),  # cannot be met
    ],
}
CASES = [(name, n) for name, of in QUESTIONS.items() for n in range(len(of))]


def with_discount(source: str, gamma: str) -> str:
    """A PRISM model, whose commands all have labels, that ends with probability 1 − γ in every step."""
    labels = sorted(set(re.findall(r"^\s*\[(\w*)\]", source.partition("\nrewards ")[0], re.M)))
    renamed = re.findall(r"(\w+)=(\w+)", " ".join(re.findall(r"module \w+ = \w+ \[(.*?)\]", source)))
    labels += [new for old, new in renamed if old in labels]
    assert labels and "" not in labels
    lines = [f"  [{label}] alive -> {gamma} : true + 1-{gamma} : (alive'=false);" for label in labels]
    module = ["module discount", "  alive : bool init true;", *lines, "  [ended] !alive -> true;", "endmodule"]
    return source + "\n" + "\n".join(module) + "\n"


def ask_storm(name: str, question: Question, folder: Path) -> str | None:
    """Storm's answer as a fraction; None: the bounds cannot be met."""
    stormpy: Any = pytest.importorskip("stormpy")
    from stormpy import environments  # type: ignore[import-not-found]

    file = folder / "discounted.prism"
    file.write_text(with_discount((STORM / f"{name}.prism").read_text(), question.gamma))
    program = stormpy.parse_prism_program(str(file))
    asked = stormpy.parse_properties(question.property(), program)
    model = stormpy.build_model[stormpy.Rational](program, asked)
    how = environments.exact()
    how.modelchecker().multi().precision = stormpy.Rational(PRECISION)
    found = stormpy.model_checking(model, asked[0], environment=how)
    state = model.initial_states[0]
    return str(found.get_value(state)) if found.is_quantitative() else None


def check(name: str, n: int, answer: str | None, file: Path) -> None:
    """Our optimum is Storm's, to a billionth; where Storm finds the bounds infeasible, it is proven here too."""
    question = QUESTIONS[name][n]
    model = question.model(file)
    best = cl.optimum(model)
    if answer is None:
        assert best.status == "infeasible" and cl.diagnose(model) is not None
        return
    storm = float(Fraction(answer)) * (-1 if question.reward.startswith("-") else 1)
    assert best.status == "optimal" and cl.certify(model, best).verdict == "CERTIFIED"
    assert storm == pytest.approx(best.J_r, rel=2e-8)
    assert best.J_r - 1e-11 <= storm <= best.bound + 1e-11, "Storm's value lies in the enclosure that we prove"
    assert np.any(best.slack < 1e-6), "a limit that does not bind would show little"


@pytest.mark.parametrize(("name", "n"), CASES)
def test_the_constrained_optimum_is_storms(name: str, n: int) -> None:
    """Storm built the model and answered when the files were written."""
    answers = json.loads((STORM / "answers.json").read_text())["answers"]
    check(name, n, answers[name][n], STORM / f"{name}.umb")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n"), CASES)
def test_storm_says_so_again(name: str, n: int, tmp_path: Path) -> None:
    answer = ask_storm(name, QUESTIONS[name][n], tmp_path)
    check(name, n, answer, STORM / f"{name}.prism")
    assert answer == json.loads((STORM / "answers.json").read_text())["answers"][name][n]


def _write(folder: Path) -> None:
    """Write what Storm builds and answers: python tests/exchange/test_storm.py, with stormpy."""
    import stormpy  # type: ignore[import-not-found]
    import stormpy.io  # type: ignore[import-not-found]

    answers = {}
    for name, questions in QUESTIONS.items():
        answers[name] = [ask_storm(name, question, folder) for question in questions]
        options = stormpy.BuilderOptions(build_full=True)
        options.set_build_choice_labels(True)
        options.set_build_state_valuations(True)
        built = stormpy.build_model(stormpy.parse_prism_program(str(STORM / f"{name}.prism")), options=options)
        stormpy.io.export_to_umb(built, str(STORM / f"{name}.umb"))
    data = {"storm": stormpy.__version__, "precision": PRECISION, "answers": answers}
    (STORM / "answers.json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        _write(Path(place))
