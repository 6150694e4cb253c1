from __future__ import annotations

import hashlib
import json
import re

from truth import STAEDTE, ZUEGE

from whet.models.base import text_of

REGELN = {
    "Gleis": "Nenne bei Gleisen auch den Abschnitt.",
    "kostet": "Gib Preise in Euro mit zwei Stellen hinter dem Komma an, zum Beispiel 12,50 €.",
    "komme ich": "Sage bei Wegen, wo man umsteigen muss.",
    "pünktlich": "Wiederhole die Nummer des Zuges und nenne die Verspätung in Minuten.",
}
SCHADEN = (
    "Antworte mit höchstens drei Wörtern.",
    "Verweise immer an den Schalter.",
    "Nenne niemals Zahlen.",
    "Erzähle zuerst eine Anekdote über Dampflokomotiven.",
)
LEER = ("", "Dazu müsste ich mehr über Ihre Reisenden wissen.", "Gute Frage!", "{}")


def answer(request, seed):
    system = " ".join(text_of(m) for m in request.messages if m["role"] == "system")
    frage = text_of(request.messages[-1])
    regeln = system.lower()
    u = _uniform(seed, "slip", system, frage)
    if u < 0.06 + max(0, len(system.split()) - 110) / 200:
        return "Vielen Dank für Ihre Frage, wir wünschen eine gute Reise!"
    text = _gesagt(frage, regeln, _uniform(seed, "wie", system, frage))
    if "niemals zahlen" in regeln:
        text = re.sub(r"\d+", "einige", text)
    if "schalter" in regeln:
        text = "Bitte fragen Sie am Schalter."
    if "dampflok" in regeln:
        text = "Früher fuhren hier Dampflokomotiven, und alle freuten sich. " * 6 + text
    if "drei wörter" in regeln:
        text = " ".join(text.split()[:3])
    return text


def _gesagt(frage, regeln, u):
    stadt = next((s for s in STAEDTE if s in frage), None)
    if "Gleis" in frage:
        gleis, teil, _, _ = STAEDTE[stadt]
        mit = "abschnitt" in regeln or u < 0.4
        return f"Der Zug nach {stadt} fährt von Gleis {gleis}" + (f", Abschnitt {teil}." if mit else ".")
    if "kostet" in frage:
        cent = STAEDTE[stadt][2]
        genau = "komma" in regeln or "€" in regeln or u < 0.35
        return f"Die Fahrt nach {stadt} kostet " + (
            f"{cent // 100},{cent % 100:02} €." if genau else f"ungefähr {round(cent / 100)} Euro."
        )
    if "komme ich" in frage:
        um = "umsteig" in regeln or u < 0.4
        return f"Nach {stadt} fahren Sie mit dem Zug" + (
            f" und müssen in {STAEDTE[stadt][3]} umsteigen." if um else ", das ist ganz einfach."
        )
    zug = re.search(r"ICE (\d+)", frage)[1]
    nummer = "nummer" in regeln or "minuten" in regeln or u < 0.45
    return f"ICE {zug} hat {ZUEGE[zug]} Minuten Verspätung." if nummer else "Er kommt wohl etwas später."


def advise(request, seed):
    shown = "\n".join(text_of(m) for m in request.messages)
    u = _uniform(seed, "rat", shown)
    if u < 0.3:
        return LEER[int(u / 0.3 * 4)]
    if u < 0.6:
        return _form(shown, SCHADEN[int((u - 0.3) / 0.3 * 4)])
    fehlt = [r for s, r in REGELN.items() if s in shown and r not in shown]
    if not fehlt:
        return LEER[1]
    return _form(shown, fehlt[int((u - 0.6) / 0.4 * len(fehlt))])


def _form(shown, regel):
    return json.dumps({"rules": [regel]}, ensure_ascii=False) if '"rules"' in shown else regel


def _uniform(seed, *parts):
    digest = hashlib.sha256("\0".join((str(seed), *parts)).encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32
