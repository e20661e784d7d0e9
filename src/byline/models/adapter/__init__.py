"""The adapter over Pydantic AI's model layer. What imports a provider's library is imported at the first answer."""

from byline.models.adapter.model import PydanticAiModel, chat_model

__all__ = ["PydanticAiModel", "chat_model"]
