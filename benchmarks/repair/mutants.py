"""Prints the mutants that mutmut 2 makes of a text as JSON; run by an interpreter that has it, of its own."""

import json
import sys

from mutmut import Context, list_mutations, mutate

source = sys.stdin.read()
texts = []
for mutation in list_mutations(Context(source=source)):
    text, count = mutate(Context(source=source, mutation_id=mutation))
    if count and text != source:
        texts.append(text)
json.dump(texts, sys.stdout)
