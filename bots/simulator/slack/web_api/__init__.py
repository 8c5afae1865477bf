"""The methods of Slack's Web API that the simulator knows."""

from bots.simulator.slack.web_api import conversations, directory, messages, reactions
from bots.simulator.slack.web_api.call import Call, Method

METHODS: dict[str, Method] = {
    **messages.METHODS,
    **reactions.METHODS,
    **conversations.METHODS,
    **directory.METHODS,
}

__all__ = ["METHODS", "Call", "Method"]
