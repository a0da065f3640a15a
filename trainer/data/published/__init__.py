"""Published data sets: sources, downloads, file formats, tensors.

To add a data set whose images fit in memory:

1. `formats.py`: a function that parses its files into `Arrays`, and an entry in `FORMATS`. Ten classes are assumed
   (`CLASSES`); a data set with another number needs that number in `Format` and in `tensors.load`.
2. `files.py`: an entry in `LAYOUTS`, the folders that its files may lie in.
3. `fetch.py`: where it can be had (`_fetch`), what its published files are (`is_published`, `PUBLISHED_IMAGES`), and
   what to tell users who can't get it (`WAYS_OUT`).
4. `trainer/config/flags.py`: its name in `DATASETS`; if it has a tuned recipe, that is in `recipes.py` beside it.

A unit test fails while an entry is missing. Images too many for memory are an image folder: `trainer/data/streaming`.
"""
