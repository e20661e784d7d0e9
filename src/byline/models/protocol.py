"""The one small protocol behind which every model stands."""

from typing import Protocol

from byline.models.messages import ModelAnswer, ModelRequest


class ChatModel(Protocol):
    """Transcript and tools in, one answer out.

    A model may name itself for telemetry, with the attributes `provider_name` and `model_name`.
    """

    async def answer(self, request: ModelRequest, /) -> ModelAnswer:
        """Answer once.

        Raises:
            ModelError: the model could not answer; any other exception is treated alike.
        """
        ...
