"""The front desk of a clinic: finds the topic of a question, lets the model use the tools for it, and replies."""

import json
import os
import sys
import urllib.request
from pathlib import Path

import helpers

ROLE = "You are the front desk of the Lindenhof clinic and answer patients in whole sentences."
CONDUCT = (
    "Never name a diagnosis, and never advise for or against a treatment.",
    "Name the doctor whenever you confirm an appointment.",
    "If the records have nothing on a question, say that you cannot tell.",
    "Repeat the number of the sample when you speak of laboratory results.",
    "For urgent trouble at night give the number 0844 117 011.",
    "Name the specialty when you say whether a referral is needed.",
    "Do not speak of other patients.",
)
HOUSE_STYLE = (helpers.FOLDER / "house_style.txt").read_text(encoding="utf-8")
INSTRUCTIONS = "\n".join((ROLE, *CONDUCT, HOUSE_STYLE.rstrip()))

MODEL = "frontdesk-1"
TEMPERATURE = 0.3
NOTICE = 24  # hours before which an appointment can be moved
SETTLING = 10  # minutes in the changing room

CONFIG = helpers.document("config.json")
TOPICS = {phrase: row["topic"] for phrase, row in helpers.sheet("topics.csv").items()}
TREATMENTS = helpers.sheet("treatments.csv")
EXAMINATIONS = helpers.sheet("examinations.csv")
DOCTORS = helpers.sheet("doctors.csv")
ROTA = helpers.document("rota.json")
PLANS = helpers.document("plans.json")
OFFICE = helpers.document("office.json")
SHUTTLE = helpers.document("shuttle.json")
FILES = helpers.document("notes.json")

PLAYBOOK = {
    "fees": ("fee",),
    "own share": ("fee", "own_share"),
    "opening": ("opening",),
    "consulting": ("consulting",),
    "ward": ("ward_hours",),
    "slots": ("next_free",),
    "appointment": ("appointment",),
    "moving": ("appointment", "may_move"),
    "prescription": ("prescription",),
    "supply": ("supply",),
    "fever": ("celsius",),
    "preparation": ("preparation",),
    "fasting": ("fasting",),
    "duration": ("duration",),
    "arrival": ("lead", "be_there"),
    "laboratory": ("sample",),
    "referral": ("referral",),
    "insurers": ("accepted",),
    "bill": ("bill",),
    "instalments": ("bill", "instalment"),
    "languages": ("speaks",),
    "specialty": ("specialty",),
    "vaccination age": ("lowest_age",),
    "vaccine": ("vaccine",),
    "certificate": ("certificate",),
    "shuttle": ("shuttle",),
    "tram": ("site",),
    "parking": ("site",),
    "exercise": ("exercise",),
}
NOTED = ("allergy", "tetanus", "pharmacy", "exercise", "patient number")


class FrontDesk:
    """One conversation; every method that TOOLS names is a tool, and `seen` is what earlier ones found."""

    def __init__(self, patient):
        self.patient = patient
        self.seen = {}

    def fee(self, treatment):
        """The fee for a treatment, in francs."""
        self.seen["fee"] = float(TREATMENTS[treatment]["fee"])
        return {"treatment": treatment, "fee": self.seen["fee"]}

    def own_share(self, insurer):
        """What of the fee is left to a patient who has this insurer; after fee."""
        left = 100 - PLANS[insurer]["covers"]
        return {"insurer": insurer, "own_share": round(self.seen["fee"] * left / 100, 2)}

    def opening(self, site, weekday):
        """Opening hours of a branch on a weekday."""
        return {"site": site, "weekday": weekday, **helpers.fetch("opening", f"{site}/{weekday}")}

    def consulting(self, doctor, weekday):
        """A doctor's consulting hours on a weekday."""
        begins, _, ends = ROTA[doctor][helpers.short(weekday)].partition("-")
        return {"doctor": doctor, "weekday": weekday, "begins": begins, "ends": ends}

    def ward_hours(self, ward):
        """Until when a ward can be visited."""
        return {"ward": ward, "until": helpers.fetch("wards", ward.lower())["until"]}

    def next_free(self, doctor):
        """The next free appointment with a doctor."""
        answer = helpers.fetch("slots", doctor)
        first = answer["next"] if "next" in answer else answer["free"][0]
        return {"doctor": doctor, "next_free": first}

    def appointment(self, reference):
        """An appointment by its reference."""
        answer = helpers.fetch("appointments", reference)
        self.seen["hours"] = answer["hours_ahead"]
        return {"reference": reference, **answer}

    def may_move(self):
        """Whether the appointment may still be moved; after appointment."""
        return {"movable": self.seen["hours"] >= NOTICE}

    def prescription(self, number):
        """Whether a prescription is ready."""
        answer = helpers.fetch("pharmacy", number)
        ready = answer["ready"] if "ready" in answer else answer["status"] == "ready"
        return {"prescription": number, "ready": ready}

    def supply(self, tablets, per_day):
        """For how many days tablets last."""
        return {"days": tablets // per_day}

    def celsius(self, fahrenheit):
        """A temperature in degrees Celsius."""
        return {"celsius": round((fahrenheit - 32) * 5 / 9, 1)}

    def preparation(self, examination):
        """What has to be done before an examination."""
        return {"examination": examination, "steps": helpers.fetch("guides", examination)["steps"]}

    def fasting(self, examination):
        """For how many hours before an examination nothing may be eaten."""
        return {"examination": examination, "hours": int(EXAMINATIONS[examination]["fasting"])}

    def duration(self, examination):
        """How many minutes an examination takes, with the changing room."""
        return {"examination": examination, "minutes": int(EXAMINATIONS[examination]["minutes"]) + SETTLING}

    def lead(self, examination):
        """How many minutes before an examination the patient has to come."""
        self.seen["lead"] = int(EXAMINATIONS[examination]["lead"])
        return {"examination": examination, "lead": self.seen["lead"]}

    def be_there(self, clock):
        """When the patient has to be at the desk; after lead."""
        return {"be_there": helpers.earlier(clock, self.seen["lead"])}

    def sample(self, number):
        """Whether the results of a sample are there."""
        return {"sample": number, "finished": helpers.fetch("laboratory", number)["state"] == "finished"}

    def referral(self, specialty):
        """Whether a specialty wants a referral."""
        return {"specialty": specialty, "referral": OFFICE["referral"][specialty]}

    def accepted(self, insurer):
        """Whether the clinic has a contract with an insurer."""
        return {"insurer": insurer, "accepted": PLANS[insurer]["contract"]}

    def bill(self, number):
        """The sum of a bill."""
        answer = helpers.fetch("billing", number)
        amount = answer["amount"] if "amount" in answer else answer["rappen"] / 100
        self.seen["amount"] = amount
        return {"bill": number, "amount": amount}

    def instalment(self, months):
        """The bill in equal parts; after bill."""
        return {"parts": months, "part": round(self.seen["amount"] / months, 2)}

    def speaks(self, doctor, language):
        """Whether a doctor speaks a language."""
        spoken = DOCTORS[doctor]["languages"].split("|")
        return {"doctor": doctor, "language": language, "speaks": language in spoken}

    def specialty(self, doctor):
        """A doctor's field."""
        return {"doctor": doctor, "specialty": DOCTORS[doctor]["specialty"]}

    def lowest_age(self, vaccine):
        """From how many months of age a vaccine is given."""
        return {"vaccine": vaccine, "months": OFFICE["lowest age"][vaccine]}

    def vaccine(self, vaccine, site):
        """Whether a branch has a vaccine."""
        doses = helpers.fetch("vaccines", f"{vaccine}@{site}")["doses"]
        return {"vaccine": vaccine, "site": site, "there": doses > 0}

    def certificate(self, days):
        """What a sick note for some days costs."""
        return {"days": days, "francs": OFFICE["sick note"]["base"] + OFFICE["sick note"]["a day"] * days}

    def shuttle(self, site):
        """How many minutes the shuttle takes to a branch."""
        return {"site": site, "minutes": SHUTTLE[site]}

    def site(self, site):
        """Tram stop and car park of a branch."""
        return {"site": site, **helpers.fetch("sites", site)}

    def exercise(self, complaint):
        """The exercise for a complaint."""
        return {"complaint": complaint, "exercise": OFFICE["exercise"][complaint]}

    def use(self, name, arguments):
        """Use a tool; what goes wrong is its result."""
        try:
            return TOOLS[name](self, **arguments)
        except Exception as problem:
            return {"error": f"{type(problem).__name__}: {problem}"}

    def opened(self, question):
        """The messages that a conversation begins with, and the tools that it has."""
        topic = helpers.topic_of(question, TOPICS)
        head = [INSTRUCTIONS, f"Topic: {topic}"]
        if topic in NOTED:
            kept = helpers.newest(FILES.get(self.patient, []), CONFIG["notes_kept"])
            head += [f"Note: {note}" for note in kept]
        system = {"role": "system", "content": "\n".join(head)}
        return [system, {"role": "user", "content": question}], PLAYBOOK.get(topic, ())

    def converse(self, question):
        """The reply to a question, with one round of tools."""
        messages, names = self.opened(question)
        limits = {"temperature": TEMPERATURE, "max_tokens": CONFIG["longest_reply"]}
        body = {"model": MODEL, "messages": messages, **limits}
        message = complete({**body, "tools": [described(name) for name in names]} if names else body)
        if message.get("tool_calls"):
            messages = [*messages, message]
            for wanted in message["tool_calls"]:
                found = self.use(wanted["function"]["name"], json.loads(wanted["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": wanted["id"], "content": json.dumps(found)})
            message = complete({**body, "messages": messages})
        return message.get("content") or ""


TOOLS = {name: getattr(FrontDesk, name) for names in PLAYBOOK.values() for name in names}


def described(name):
    """A tool as the model is told of it."""
    function = {"name": name, "description": TOOLS[name].__doc__, "parameters": {"type": "object"}}
    return {"type": "function", "function": function}


def complete(body):
    """One chat completion; the endpoint is OPENAI_BASE_URL."""
    key = os.environ.get("OPENAI_API_KEY", "none")
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"].rstrip("/") + "/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)["choices"][0]["message"]


def reply(question, patient=""):
    """What the front desk says to a patient."""
    return FrontDesk(patient).converse(question)


if __name__ == "__main__":
    for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        print(reply(row["question"], row["person"]))
