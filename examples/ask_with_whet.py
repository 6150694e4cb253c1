"""Ask the mail agent:  python ask.py FOLDER "When did someone at earthlink want to meet?" """

import sys

from mail_agent import agent
from mail_agent.tools import Inbox

import whet

whet.attach(agent, "RULE", "PARSER", "decide")
agent.answer = whet.trace("runs.db")(agent.answer)

if __name__ == "__main__":
    print(agent.answer(sys.argv[2], Inbox(sys.argv[1])))
