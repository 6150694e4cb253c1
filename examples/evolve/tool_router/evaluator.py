"""Share of questions for which the tool that is meant scores highest among all tools of the catalogue.

`catalogue.json`, beside this file, holds `tools` ([name, description] each) and `questions` ([text,
name of the tool] each); `prepare.py` makes it from the questions of the Berkeley Function Calling
Leaderboard. A tie counts as the share of the tied tools that are right.
"""

import importlib.util
import json
import os
import re
from collections import Counter

WORD = re.compile(r"[a-z]+|[0-9]+")


def words(text):
    return Counter(WORD.findall(text.lower().replace("_", " ")))


class Catalogue:
    """The tools as counted words, with an index from words to tools."""

    def __init__(self, data):
        self.names = [name for name, _ in data["tools"]]
        self.of_name = [words(name) for name in self.names]
        self.of_text = [words(f"{name} {text}") for name, text in data["tools"]]
        self.length = [sum(counts.values()) for counts in self.of_text]
        self.mean = sum(self.length) / len(self.length)
        self.having = {}
        for place, counts in enumerate(self.of_text):
            for word in counts:
                self.having.setdefault(word, []).append(place)
        self.questions = [(words(text), name) for text, name in data["questions"]]

    def accuracy(self, weight):
        right = 0.0
        for asked, wanted in self.questions:
            scores = {}
            for word, times in asked.items():
                having = self.having.get(word, ())
                for place in having:
                    scores[place] = scores.get(place, 0.0) + weight(
                        times,
                        self.of_name[place][word],
                        self.of_text[place][word],
                        len(having),
                        len(self.names),
                        self.length[place],
                        self.mean,
                    )
            if scores:
                top = max(scores.values())
                tied = [place for place, score in scores.items() if score >= top]
                right += sum(self.names[place] == wanted for place in tied) / len(tied)
        return right / len(self.questions)


def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program.weight


def evaluate(path):
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "catalogue.json")
    with open(beside, encoding="utf-8") as file:
        catalogue = Catalogue(json.load(file))
    return {"combined_score": catalogue.accuracy(load(path))}
