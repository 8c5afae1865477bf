"""Slack's limits, in characters unless the name has another unit.

From docs.slack.dev (Block Kit, chat.postMessage, Web API). Limits of our own are marked as such."""

BLOCKS_MAX = 50
SECTION_TEXT_MAX = 3000
HEADER_TEXT_MAX = 150
MARKDOWN_TEXT_MAX = 12_000
"""Limit on the total length of all `markdown` blocks in a message."""
TABLE_ROWS_MAX = 101
"""Maximum number of rows of a data_table, including its header. Another page of Slack's documentation allows 201."""
TABLE_COLUMNS_MAX = 20
TABLE_CAPTION_MAX = 150
"""Our own limit, because Slack states none."""
ACTIONS_ELEMENTS_MAX = 25
BUTTON_TEXT_MAX = 75
BUTTON_VALUE_MAX = 2000
SELECT_OPTIONS_MAX = 100
OPTION_TEXT_MAX = 75
OPTION_VALUE_MAX = 150
PLACEHOLDER_MAX = 150
VIEW_TITLE_MAX = 24
INPUT_TEXT_MAX = 3000
FALLBACK_TEXT_MAX = 4000
"""The limit that Slack recommends for `text`, which it truncates at 40,000 characters."""
PLAIN_MESSAGE_MAX = 12_000
"""Our own limit for a message without blocks, which Slack truncates at 40,000 characters."""
PLAN_TITLE_MAX = 150
"""Our own limit, because Slack states none."""
TASK_TITLE_MAX = 150
"""Our own limit, because Slack states none."""
TASK_DETAIL_MAX = 300
"""Our own limit, because Slack states none."""
TASKS_MAX = 20
"""Our own limit, because more tasks would push the rest of the message off the screen."""
FILE_BYTES_MAX = 1_000_000_000
ANSWER_MAX = 11_000
"""Our own limit, which leaves room for characters that Slack adds when it converts Markdown to blocks."""
EDIT_INTERVAL_SECONDS = 1.0
THREAD_PAGE_MAX = 500
EVENT_AGE_SECONDS_MAX = 300
"""A signed request older than this is a replay (docs.slack.dev, verifying requests)."""
