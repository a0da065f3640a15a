"""Published data sets: what they are, downloads, file formats, tensors.

To add a data set whose images fit in memory:

1. `catalog.py`: an entry in `CATALOG`, which describes its files and where they come from.
2. `formats.py`: a function that parses its files, if none of those there does. Ten classes are assumed (`CLASSES`); for
   a data set with another number, make that number a field of the entry, and use it in `formats` and `tensors.load`.
3. `trainer/config/flags.py`: its name in `PUBLISHED_DATASETS`; if it has a tuned recipe, that is in `recipes.py` there.

Nothing else knows any set by its name; `test_completeness.py` checks that the entry and the name agree. Images too many
for memory are an image folder: `trainer/data/streaming`.
"""
