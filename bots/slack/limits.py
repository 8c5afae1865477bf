"""Every limit of Slack that this adapter keeps, in characters where nothing else is said.

From docs.slack.dev (Block Kit, chat.postMessage, Web API). Where Slack states none, the figure is ours, and says so.
"""

BLOCKS_MAX = 50
SECTION_TEXT_MAX = 3000
MARKDOWN_TEXT_MAX = 12_000
"""Of all `markdown` blocks of one message together."""
FILE_NOTE_MAX = 255
"""Ours: the one line that stands over a file."""
ACTIONS_ELEMENTS_MAX = 25
BUTTON_TEXT_MAX = 75
BUTTON_VALUE_MAX = 2000
ACTION_ID_MAX = 255
BLOCK_ID_MAX = 255
SELECT_OPTIONS_MAX = 100
OPTION_TEXT_MAX = 75
OPTION_VALUE_MAX = 150
PLACEHOLDER_MAX = 150
FALLBACK_TEXT_MAX = 4000
"""The `text` field is cut by Slack over 40,000 and should stay under this."""
PLAIN_MESSAGE_MAX = 12_000
"""Ours: of a message that has no blocks; Slack cuts over 40,000."""
PLAN_TITLE_MAX = 150
"""Ours: Slack states no limit."""
TASK_TITLE_MAX = 150
"""Ours: Slack states no limit."""
TASK_DETAIL_MAX = 300
"""Ours: Slack states no limit."""
TASKS_MAX = 20
"""Ours: more would push the rest of the message out of sight."""
FILE_BYTES_MAX = 1_000_000_000
ANSWER_MAX = 11_000
"""Ours: under MARKDOWN_TEXT_MAX by what Slack adds when it turns Markdown into its own blocks."""
EDIT_INTERVAL_SECONDS = 1.0
THREAD_PAGE_MAX = 200
EVENT_AGE_SECONDS_MAX = 300
"""A signed request older than this is a replay (docs.slack.dev, verifying requests)."""
