from launcher.image.prune import LAYERS, Image, superfluous


def image(name: str, created: int, layers: str = "", *more: str) -> Image:
    labels = {LAYERS: layers} if layers else {}
    return Image(id=f"sha256:{name}", names=(name, *more), created=created, labels=labels)


BASE, OLD_BASE = image("ringmaster-base:new", 1), image("ringmaster-base:old", 0)
A, B = image("ringmaster-packages:a", 2), image("ringmaster-packages:b", 5)
FIRST = image("ringmaster-train:1", 3, "ringmaster-packages:a", "127.0.0.1:5870/ringmaster/train:1")
SECOND = image("ringmaster-train:2", 4, "ringmaster-packages:a")
THIRD = image("ringmaster-train:3", 6, "ringmaster-packages:b")
FOREIGN = image("debian:bookworm-slim", 0, "", "someone/ringmaster-train:x")
ALL = [BASE, OLD_BASE, A, B, FIRST, SECOND, THIRD, FOREIGN]


def test_the_present_and_the_one_before_stay_with_what_they_stand_on() -> None:
    assert superfluous(ALL, THIRD.id, SECOND.id, "ringmaster-base:new") == ["ringmaster-base:old", "ringmaster-train:1"]


def test_the_one_before_may_be_older_than_another() -> None:
    assert superfluous(ALL, THIRD.id, FIRST.id, "ringmaster-base:new") == ["ringmaster-base:old", "ringmaster-train:2"]


def test_an_unchanged_image_keeps_the_newest_other_one() -> None:
    gone = ["ringmaster-base:old", "ringmaster-packages:b", "ringmaster-train:3"]
    assert superfluous(ALL, FIRST.id, SECOND.id, "ringmaster-base:new") == gone
    assert superfluous(ALL, THIRD.id, THIRD.id, "ringmaster-base:new") == ["ringmaster-base:old", "ringmaster-train:1"]


def test_names_of_others_are_left_alone() -> None:
    assert superfluous([FOREIGN, FIRST], FIRST.id, "", "debian:bookworm-slim") == []
