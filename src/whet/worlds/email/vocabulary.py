"""The word lists of the e-mail world; its code is in `questions.py` and `synthetic.py`."""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


STOP_WORDS = _words(
    """
    a able all also am an any are as ask been being both but came come day days dear does done each else
    even ever few fine first for from get gets good got had has have her here hers him his how however
    its just keep know last less let like made make many may maybe more most much must myself new next
    not now off one only other our ours out over own per please put rather really regards said same see
    seem seen she should since some soon still such sure take than thank thanks their them then there
    these those three through thru too took two under until upon use used very via want was way well
    were what when where which while who whom why will with within without would yes yet you your yours
    best look let attached forwarded message original subject cc bcc sent fyi www http https com net org
    html htm doc xls pdf
    """
)
"""Too common to remember a mail by."""

NO_PERSON = _words(
    """
    announcements association center committee company corporation corp daily department desk energy
    group help inc information list mail marketing markets news newsletter office online power report
    services support system team the update webmaster
    """
)
"""A display name that holds one of these is not a person's."""

FIRST_NAMES = _words(
    """
    Ada Bruno Carla Derek Edith Felix Greta Hugo Irene Jonas Katja Lorenz Marta Nils Olga Pavel Quentin
    Rosa Stefan Tilda Ulric Vera Walter Xenia Yannick Zelda Amber Boris Celia Dario Elsa Frank Gwen
    Henry Ida Judith Karl Lena Miles Nora Oscar Paula Robin Sherry Tomas Ursula Viktor Wanda
    """
)
"""Of made-up people."""

NOUNS = _words(
    """
    agreement agenda analysis approval archive assembly audit backlog balance batch bearing bid board
    boiler branch brochure budget cable capacity cargo catalog chart claim clause cleaning client code
    coil comment compressor conference contract corridor council coverage crane credit customs dam
    deadline delay delivery demand deposit depot design dispute dock draft drain drill duty elevator
    engine estimate exhibit export facility failure fence filing filter fleet forecast formula freight
    fuel garage gasket gauge generator grant harbor hearing heater hire hotel housing import index
    injury inlet inspection insurance interest interview inventory invoice kitchen labor landlord laptop
    layout leak lease license loan locker logo maintenance manual margin market merger meter minutes
    model motor move network notice office orchard outage outline overtime packaging panel parcel
    parking parts patent payment pension permit pilot pipeline planning plant platform policy pool
    portfolio position pressure printer procedure proposal prototype pump purchase quarry query quota
    railway ramp rebate receipt recruit refund registry rehearsal relay renewal rent repair request
    reserve review revision roof roster route royalty sample scaffold schedule seal season security
    seminar server settlement shelf shift shipment shortage signal site sketch software sponsor staffing
    station storage strategy strike supplier survey switch tank tariff tender terminal testing timber
    tower toolkit tour trade training transfer transit travel treaty truck tunnel turbine upgrade
    vacancy valve vendor venue visa visit voucher warehouse warranty waste welding wharf winter wiring
    workshop yard
    """
)
"""The topics of made-up mails."""

STEMS = _words(
    """
    bal bor cal cren dar dol fen gar hal hest jor kel lan lor mar mel nor ost pel quin ras sel tam tor
    ulm ver wil
    """
)
"""Beginnings of made-up names."""

MIDDLES = _words(
    """
    a e i o u an el in or ur
    """
)
"""Links within made-up names."""

ENDS = _words(
    """
    ach by den dorf er feld gate ham ing ko ley man more ner over rick sen stad ton vik wood
    """
)
"""Ends of made-up names."""

WEEKDAYS = _words(
    """
    monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun
    """
)
"""In full and short."""

STANDARD_FOLDERS = _words(
    """
    inbox sent sent_items sent_mail sent_messages outbox drafts draft trash deleted deleted_items
    deleted_messages junk spam all_documents all_mail discussion_threads notes_inbox archive archives
    calendar contacts tasks
    """
)
"""Names that mail programs give to folders, as lower case with underscores."""
