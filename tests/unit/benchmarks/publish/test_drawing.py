"""Charts: every point is where its value says, and words are no markup."""

from xml.etree import ElementTree

import pytest

from benchmarks.publish import drawing
from benchmarks.result import Chart, Curve

SVG = "{http://www.w3.org/2000/svg}"


def chart(*points: tuple[float, float], logarithmic: bool = False, label: str = "a") -> Chart:
    curve = Curve(label=label, points=points)
    return Chart(name="c", title="T", x="batch", y="times", curves=(curve,), logarithmic=logarithmic)


def dots(drawn: str) -> list[tuple[float, float]]:
    circles = ElementTree.fromstring(drawn).iter(f"{SVG}circle")  # noqa: S314  (our own)
    return [(float(circle.get("cx", "")), float(circle.get("cy", ""))) for circle in circles]


def words(drawn: str) -> list[str | None]:
    return [text.text for text in ElementTree.fromstring(drawn).iter(f"{SVG}text")]  # noqa: S314  (our own)


def test_doublings_are_evenly_apart_on_a_logarithmic_axis() -> None:
    drawn = drawing.draw(chart((64, 1.0), (128, 1.5), (256, 2.0), logarithmic=True))
    places = [across for across, _ in dots(drawn)]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.2)
    assert {"64", "128", "256"} <= set(words(drawn))


def test_values_are_in_proportion_above_zero() -> None:
    drawn = drawing.draw(chart((0, 10.0), (10, 20.0), (20, 40.0)))
    (x0, y0), (x1, y1), (x2, y2) = dots(drawn)
    assert x2 - x1 == pytest.approx(x1 - x0, abs=0.2)
    assert (y1 - y2) / (y0 - y1) == pytest.approx(2, abs=0.05)


def test_everything_lies_on_the_card() -> None:
    for across, down in dots(drawing.draw(chart((0, 0.91), (3000, 0.925)))):
        assert 0 < across < drawing.WIDTH
        assert 0 < down < drawing.HEIGHT


def test_one_point_is_a_dot() -> None:
    assert len(dots(drawing.draw(chart((4, 2.0))))) == 1
    assert len(dots(drawing.draw(chart((4, 2.0), logarithmic=True)))) == 1


def test_words_are_no_markup() -> None:
    assert "<b> & co" in words(drawing.draw(chart((0, 1), (1, 2), label="<b> & co")))


def test_many_long_labels_take_several_rows() -> None:
    curves = tuple(Curve(label=f"a rather long label {n}", points=((0, n), (1, n))) for n in range(6))
    drawn = drawing.draw(Chart(name="c", title="T", x="x", y="y", curves=curves))
    rows = {text.get("y") for text in ElementTree.fromstring(drawn).iter(f"{SVG}text") if (text.text or "")[:1] == "a"}  # noqa: S314  (our own)
    assert len(rows) == 2


@pytest.mark.parametrize("bad", [chart(), chart((0, 1), (2, 2), logarithmic=True)])
def test_what_cannot_be_drawn_is_refused(bad: Chart) -> None:
    with pytest.raises(ValueError, match="chart c"):
        drawing.draw(bad)
