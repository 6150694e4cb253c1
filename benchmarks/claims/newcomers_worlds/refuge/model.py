"""The guardian's model, long-winded in Markdown either way, and the adviser, which helps in 4 of 10 answers."""

from __future__ import annotations

import hashlib
import json

from truth import SPACE, START, SUMMITS, asked_of, euros, gear_of, group_of, metres, posts

from whet.models.base import ModelRequest, text_of

RULES = {
    "chemin": (
        "Pour une montée, numérote les étapes et donne l'altitude de chacune.",
        "Décris les montées en étapes numérotées, chacune avec son altitude.",
    ),
    "sac": (
        "Pour le sac, indique le poids de chaque objet entre parenthèses.",
        "Ajoute entre parenthèses le poids de ce qu'il faut emporter.",
    ),
    "danger": (
        "Si on parle de dangers ou de risques, termine par le niveau sur 5.",
        "Termine tout avis sur un danger par son niveau sur 5.",
    ),
    "prix": (
        "Pour un prix, écris le total en euros et en centimes.",
        "Calcule le total, au centime près, quand on demande un prix.",
    ),
}
SIGNS = {
    "chemin": ("Comment monter", "Par où passe"),
    "sac": ("emporter", "dans le sac"),
    "danger": ("du danger", "Quels risques"),
    "prix": ("personnes",),
}
KEYS = {"chemin": "altitude", "sac": "poids", "danger": "sur 5", "prix": "total"}
LUCK = {"chemin": 0.3, "sac": 0.25, "danger": 0.4, "prix": 0.3}
HARMFUL = (
    "Réponds en une seule phrase.",
    "N'écris jamais de chiffres.",
    "Fais toujours des listes à tirets, jamais numérotées.",
    "Raconte d'abord l'histoire du refuge.",
    "Renvoie les randonneurs à l'office de tourisme.",
)
IDLE = ("Reste poli.", "La montagne est belle.", "Relis ta réponse avant de l'envoyer.")
CHATTER = ("", "La montagne, c'est la liberté !", "Il me faudrait plus d'exemples.", "{}", "```json\n{}\n```")
_ADVICE = (
    "Partez tôt, avant que le soleil ne chauffe la neige, et prévenez quelqu'un de votre retour.\n\n"
    "**À savoir**\n\n- le temps change vite au-dessus de la forêt\n- l'eau de la source est bonne\n"
    "- les chiens restent en laisse près des troupeaux"
)
_HISTORY = (
    "Notre refuge fut bâti par des bergers, puis agrandi par un club de montagnards qui montaient les "
    "pierres à dos de mulet. "
)


def answer(request: ModelRequest, seed: int) -> str:
    """What the guardian says: complete where a rule of the prompt asks for it, else by luck."""
    told = ("system", "developer")
    system = " ".join(text_of(each) for each in request.messages if each["role"] in told)
    question, rules = text_of(request.messages[-1]), system.lower()
    if _uniform(seed, "slip", system, question) < 0.05 + max(0, len(system.split()) - 120) / 200:
        return "**Bonne randonnée !**\n\n- le refuge vous attend\n- à bientôt"
    kind, summit = asked_of(question)
    whole = KEYS[kind] in rules or _uniform(seed, "luck", system, question) < LUCK[kind]
    return _spoilt(_said(kind, summit, question, whole), rules)


def _said(kind: str, summit: str, question: str, whole: bool) -> str:
    if kind == "prix":
        costs = posts(*group_of(question))
        lines = [
            f"- {name} : {euros(cents) if whole else 'selon la saison'}" for name, cents in costs.items()
        ]
        end = f"**Total : {euros(sum(costs.values()))}**" if whole else "**Réglez en arrivant, en espèces.**"
        return "\n".join(["**Nos tarifs**", "", *lines, "", end, "", _ADVICE])
    if kind == "sac":
        things = gear_of(summit)
        lines = [f"- {name} ({grams}{SPACE}g)" if whole else f"- {name}" for name, grams in things.items()]
        return "\n".join([f"**Dans le sac, {summit}**", "", *lines, "", _ADVICE])
    height, first, second, level = SUMMITS[summit]
    if kind == "danger":
        end = f"**Niveau {level} sur 5**" if whole else "**Soyez prudents**"
        return f"**{summit}**\n\n- pierres instables vers « {second[0]} »\n- orages l'après-midi\n\n{end}\n\n{_ADVICE}"
    way = (("refuge", START), first, second, ("sommet", height))
    lines = [
        f"{n}. {name}, {metres(high)}" if whole else f"- {name}" for n, (name, high) in enumerate(way, 1)
    ]
    return "\n".join([f"**Montée, {summit}**", "", *lines, "", _ADVICE])


def _spoilt(text: str, rules: str) -> str:
    """What harmful rules make of an answer."""
    if "listes à tirets" in rules:
        text = "\n".join(f"- {line[3:]}" if line[:1].isdigit() else line for line in text.splitlines())
    if "jamais de chiffres" in rules:
        text = "".join("x" if each.isdigit() else each for each in text)
    if "office de tourisme" in rules:
        text = "L'office de tourisme vous renseignera.\n\n- ouvert le matin\n- fermé le lundi"
    if "histoire du refuge" in rules:
        text = _HISTORY * 4 + text
    return text.splitlines()[0] if "une seule phrase" in rules else text


def advise(request: ModelRequest, seed: int) -> str:
    """What the adviser says, from what the request shows; JSON in a fence half of the time."""
    shown = "\n".join(text_of(each) for each in request.messages)
    chance, form = _uniform(seed, "advice", shown), _uniform(seed, "form", shown)
    if chance < 0.3:
        return CHATTER[int(chance / 0.3 * len(CHATTER))]
    if chance < 0.6:
        return _proposed(shown, [HARMFUL[int((chance - 0.3) / 0.3 * len(HARMFUL))]], form)
    lacking = [
        rule
        for kind, signs in SIGNS.items()
        if any(sign in shown for sign in signs) and not any(rule in shown for rule in RULES[kind])
        for rule in RULES[kind]
    ]
    if not lacking:
        return CHATTER[1]
    rules = [lacking[int((chance - 0.6) / 0.4 * len(lacking))]]
    if form < 0.3:
        rules.append(IDLE[int(form / 0.3 * len(IDLE))])
    return _proposed(shown, rules, form)


def _proposed(shown: str, rules: list[str], form: float) -> str:
    if '"rules"' not in shown:
        return "\n".join(f"- {rule}" for rule in rules)
    text = json.dumps({"rules": rules}, ensure_ascii=False)
    return f"```json\n{text}\n```" if form > 0.5 else text


def _uniform(seed: int, *parts: str) -> float:
    digest = hashlib.sha256("\0".join((str(seed), *parts)).encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32
