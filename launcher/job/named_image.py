"""The ways out for an image that the inventory names (`ringmaster_image`): `make image` is refused then. Pure."""


def add_packages(what: str, image: str, requirements: str) -> str:
    """Return how packages come into such an image.

    Args:
        what: the packages.
        image: as the inventory names it.
        requirements: the file that asks for them, as it is typed in a shell.
    """
    build = f"`make image REQUIREMENTS={requirements}` builds one of ours with it"
    if "@" in image:  # an image's ID alone is nothing to build on
        build = f"`make image BASE={image} REQUIREMENTS={requirements}` builds on it (if it is a Debian or an Ubuntu)"
    return (
        f"put {what} into your image and name its new digest (ringmaster_image), or take ringmaster_image out of the "
        f"inventory: then {build}"
    )
