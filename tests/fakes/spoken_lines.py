"""What three people write in a thread: to each other, and without a mention to the agent."""

SMALL_TALK = """
alice: @bob lunch at 12?
bob: sure, see you there
carol: count me in
alice: pizza or thai?
bob: pizza
carol: lol
bob: who is on call tonight?
alice: me
carol: can you swap shifts with me?
alice: will do
carol: thanks alice!
alice: np
bob: did anyone watch the game?
carol: what a match
bob: not again...
alice: I'm grabbing coffee, anyone?
carol: yes please
bob: +1
alice: is the meeting still on?
bob: yes, room 4
carol: can we move it to 11?
bob: fine with me
alice: agreed
carol: my kid is sick, I'll be late
bob: get well soon
alice: the coffee machine is broken again
carol: haha same here
bob: carol, can you review my PR?
carol: looking at it now
carol: looks good to me
bob: thanks!
alice: who broke the build?
bob: not me :D
carol: I think dave pushed something
alice: oops, sorry, fixing
bob: ok cool
carol: back in 5
alice: what time is the standup?
bob: 10:30
carol: let's ask the boss
alice: I'd rather wait until Monday
bob: how was your weekend?
carol: great, we went hiking
bob: jealous!
alice: nice weather today
carol: tell me about it
bob: have you seen my charger?
alice: it's on your desk
bob: found it, thanks
carol: see you tomorrow
""".strip().splitlines()
REQUESTS = """
alice: also add the totals
bob: can you make it a bar chart?
carol: now do the same for Q2
alice: please translate it into German
bob: use EUR instead of USD
carol: what about the second file?
alice: why is row 3 empty?
bob: try again with the other key
carol: send it as a PDF
alice: shorter please
bob: make the title bigger
carol: remove the last column
alice: sort by date
bob: and the median?
carol: run the tests again
alice: could you explain step 2?
bob: how did you calculate that?
carol: show me the code
alice: that's wrong, the sum should be 42
bob: no, I meant the other file
carol: the chart is missing a legend
alice: don't use pandas
bob: wait, only the last month
carol: put it in a table
alice: which files did you change?
bob: thanks, now the same as csv
carol: fix the typo in the heading
alice: double-check the numbers
bob: füge noch die Summen hinzu
carol: add a page with the sources
""".strip().splitlines()
