"""The methods of Slack's Web API that the simulator knows."""

from simulator.slack.web_api import (
    agents,
    conversations,
    directory,
    files,
    manifests,
    messages,
    reactions,
    streams,
    views,
)
from simulator.slack.web_api.call import Call, Method

METHODS: dict[str, Method] = {
    **messages.METHODS,
    **reactions.METHODS,
    **conversations.METHODS,
    **directory.METHODS,
    **files.METHODS,
    **views.METHODS,
    **streams.METHODS,
    **agents.METHODS,
    **manifests.METHODS,
}

__all__ = ["METHODS", "Call", "Method"]
