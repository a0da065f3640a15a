"""A data set is described in several places; none may be forgotten (see the package's docstring)."""

from trainer.config.flags import DATASETS
from trainer.config.recipes import RECIPES
from trainer.data.published import fetch, files, formats

PUBLISHED = {*DATASETS} - {"synthetic", "folder"}


def test_every_published_set_is_described_everywhere() -> None:
    described = (formats.FORMATS, files.LAYOUTS, fetch.WAYS_OUT, fetch.PUBLISHED_IMAGES)
    assert all(set(each) == PUBLISHED for each in described)
    assert {recipe.dataset for recipe in RECIPES.values()} <= PUBLISHED
