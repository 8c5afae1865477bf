"""What people and the model are told of a Modal sandbox that is not as they left it."""

IMAGE_IS_MADE = (
    "The image that sandboxes start from is being made; the first time that takes some minutes."
)
FORGOTTEN = "This conversation is deleted, and has no sandbox any more."
LOST_ALL = (
    "The sandbox ended before its files were saved. A fresh, empty one has started: make again what is "
    "still needed."
)
LOST_SOME = (
    "The sandbox ended unexpectedly. A fresh one has started with the files as they were last saved; what "
    "changed after that, and all that ran, is gone."
)
EXPIRED = (
    "The saved files of this conversation have expired. A fresh, empty sandbox has started: make again what "
    "is still needed."
)
