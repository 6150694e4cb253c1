"""Tables of examples as people keep them: every kind of file, encoding and delimiter, and what is said about each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import whet as whet_command

from whet.errors import InputError, NotFoundError
from whet.learn.datasets.examples import load
from whet.record.columns import Columns
from whet.record.rows import read_rows
from whet.record.tables import read_table
from whet.record.tasks import from_jsonl

ROWS = [{"question": "Zürich, Genf?", "answer": "2"}, {"question": 'a "b"\nc', "answer": "7"}]
CSV = 'question,answer\n"Zürich, Genf?",2\n"a ""b""\nc",7\n'


def values(path: Path) -> list[dict[str, object]]:
    return [row for _, row in read_table(path).lines]


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252"]
)
def test_a_csv_is_read_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    table = read_table(write(tmp_path / "t.csv", CSV, encoding))
    assert [row for _, row in table.lines] == ROWS
    assert [number for number, _ in table.lines] == [2, 3]
    assert bool(table.notes) == (not encoding.startswith("utf-8"))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_and_the_line_ends_are_found_out(tmp_path: Path, delimiter: str, end: str) -> None:
    lines = ["text", "what, then; this"], ["a, b", "1"], ["c; d", "2"], ["e", "3"]
    text = end.join(
        delimiter.join(f'"{cell}"' if delimiter in cell else cell for cell in line) for line in lines
    )
    table = read_table(write(tmp_path / "t.csv", text + end))
    assert list(table.columns) == lines[0]
    assert [list(row.values()) for _, row in table.lines] == list(map(list, lines[1:]))


def test_excel_says_its_delimiter_itself(tmp_path: Path) -> None:
    assert values(write(tmp_path / "t.csv", "sep=;\na;b\n1,5;2\n")) == [{"a": "1,5", "b": "2"}]


def test_json_in_its_shapes_and_parquet_give_the_same_rows(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    shapes = [ROWS, {"data": ROWS}, {"question": [row["question"] for row in ROWS], "answer": ["2", "7"]}]
    for number, shape in enumerate(shapes):
        assert values(write(tmp_path / f"{number}.json", json.dumps(shape))) == ROWS
    lines = "\n".join(map(json.dumps, ROWS))
    assert values(write(tmp_path / "t.jsonl", lines)) == values(write(tmp_path / "l.json", lines)) == ROWS
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "t.parquet")
    assert values(tmp_path / "t.parquet") == ROWS


def test_a_column_has_a_type_only_where_every_cell_has_it(tmp_path: Path) -> None:
    text = "n,x,id,b,j,mixed\n1,1.5,007,true,[1],1\n-2,3,010,FALSE,{},two\n,,,,,\n3,,1,,,\n"
    table = read_table(write(tmp_path / "t.csv", text)).typed()
    assert [row for _, row in table.lines] == [
        {"n": 1, "x": 1.5, "id": "007", "b": True, "j": [1], "mixed": "1"},
        {"n": -2, "x": 3.0, "id": "010", "b": False, "j": {}, "mixed": "two"},
        {"n": 3, "x": None, "id": "1", "b": None, "j": None, "mixed": None},
    ]
    assert [row["n"] for _, row in read_table(tmp_path / "t.csv").typed(text=["n"]).lines] == ["1", "-2", "3"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n3,4,5\n", "line 3: 3 cells, where the first line names 2 columns"),
        ('a,b\n1,2\n"x,4\n', "line 3: unexpected end of data; a quotation mark"),
        ("a,a\n1,2\n", "two columns have the name 'a'"),
        ("a,b\n", "no rows below its first line"),
        ("", "holds no rows"),
    ],
)
def test_a_broken_table_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_table(write(tmp_path / "t.csv", text))


def test_a_spreadsheet_a_missing_file_and_csv_under_another_name_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="save it as CSV"):
        read_table(write(tmp_path / "t.xlsx", "PK"))
    with pytest.raises(NotFoundError):
        read_table(tmp_path / "none.csv")
    with pytest.raises(InputError, match=r"not a JSON object .*read are \.csv, \.tsv"):
        read_table(write(tmp_path / "t.jsonl", CSV))


def test_columns_are_named_or_guessed_and_said(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "t.csv", "user,Question,x,Expected\nann,why?,1,so\nann,how?,2,\n"))
    columns = Columns.of(table)
    assert (columns.input, columns.expected, columns.group) == (("Question",), "Expected", "user")
    assert "guessed; name others with --input, --expected, --group" in columns.sentences(table)[0]
    named = Columns.of(table, input=["x"], expected="Question", group="")
    assert (named.input, named.expected, named.group) == (("x",), "Question", "")
    assert "guessed" not in " ".join(named.sentences(table))
    two = read_table(write(tmp_path / "two.csv", "line,amount\na,1\n"))
    assert Columns.of(two).expected == "amount"
    with pytest.raises(
        InputError, match=r"--input y: .* has no such column; it has user, Question, x, Expected"
    ):
        Columns.of(table, input=["y"])
    with pytest.raises(InputError, match=r"name --input and --expected. Its columns: a, b, c"):
        Columns.of(read_table(write(tmp_path / "abc.csv", "a,b,c\n1,2,3\n")))


def test_columns_under_names_of_ones_own_are_told_by_what_is_in_them(tmp_path: Path) -> None:
    """A number, a size and a key stand beside the two columns of words, which are all that is left."""
    rows = [f"{n},T-{n},Wo ist Paket {n}?,{code},0.{n}" for n, code in enumerate(["LOG", "FIN", "LOG"])]
    mixed = read_table(write(tmp_path / "t.csv", "\n".join(["Nr,Fall,Äußerung,Zuständig,Größe", *rows])))
    columns = Columns.of(mixed)
    assert (columns.input, columns.expected) == (("Äußerung",), "Zuständig")
    assert columns.guessed == ("input", "expected")
    assert Columns.of(mixed, expected="Größe", group="Zuständig").input == ("Äußerung",)
    assert Columns.of(mixed, input=["Äußerung"]).expected == "Zuständig"
    three = read_table(write(tmp_path / "three.csv", "a,b,c\nx y,x,y z\nx z,x,y\n"))
    with pytest.raises(InputError, match=r"name --input and --expected"):
        Columns.of(three)
    people = read_table(
        write(tmp_path / "p.csv", "Frage,customer,Note\nWie so?,ann li,1\nWo denn?,bo li,2\n")
    )
    with pytest.raises(InputError, match=r"name --expected. Its columns: Frage, customer, Note"):
        Columns.of(people)
    # The parameters of a function are the input, and what it should give is the only column that is left.
    fees = read_table(write(tmp_path / "fees.csv", "weight,express,fee\n1,true,2\n"))
    assert Columns.of(fees, parameters=["weight", "express"]).expected == "fee"


def test_missing_cells_are_told_and_mean_what_the_option_says(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "t.csv", "line,amount\na,1\nb,\n,3\n")).typed()
    columns = Columns.of(table)
    tasks, notes = columns.tasks(table, missing="none")
    assert [(task.instruction, task.answer, task.answer_known) for task in tasks] == [
        ("a", 1, True),
        ("b", None, True),
    ]
    assert "1 row without line left out" in notes[0]
    assert "None is taken to be the right answer" in notes[1]
    assert [task.answer_known for task in columns.tasks(table, missing="unknown")[0]] == [True, False]


def test_every_reader_of_rows_and_tasks_takes_a_csv(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "input,expected,group\none,1,0\ntwo,2,1\nthree,,1\n")
    assert [task.answer for task in read_rows(path)] == [1, 2, None]
    assert sorted(task.group for task in load(path)) == ["0", "1", "1"]
    tasks = from_jsonl(path)
    assert [(task.instruction, task.answer, task.group) for task in tasks] == [
        ("one", 1, "0"),
        ("two", 2, "1"),
        ("three", None, "1"),
    ]
    assert all(task.answer_known for task in tasks)
    bare = write(tmp_path / "u.csv", "line,amount\na,1\n")
    with pytest.raises(InputError, match=r"nor a row with an input .*; its columns: line, amount"):
        from_jsonl(bare)


def test_evolve_takes_columns_by_name_or_guesses_them(tmp_path: Path) -> None:
    (tmp_path / "amounts.py").write_text("def double(n: int) -> int:\n    return n + n + 1\n")
    rows = "".join(f"{n},{2 * n},{n // 2}\n" for n in range(40))
    (tmp_path / "rows.csv").write_text("n,twice,who\n" + rows)
    words = ("evolve", "amounts:double", "--data", "rows.csv", "--dry-run", "--iterations", "4")
    named = whet_command(*words, "--input", "n", "--expected", "twice", "--group", "who", folder=tmp_path)
    assert named.returncode == 0, named.stderr
    assert "input: n = 0; expected: twice = 0" in named.stderr
    assert "in 20 groups" in named.stderr
    unclear = whet_command(*words, folder=tmp_path)
    assert unclear.returncode == 2
    assert "name --input and --expected. Its columns: n, twice, who" in unclear.stderr
    (tmp_path / "rows.csv").write_text("n,twice\n" + "".join(f"{n},{2 * n}\n" for n in range(40)))
    guessed = whet_command(*words, folder=tmp_path)
    assert guessed.returncode == 0, guessed.stderr
    assert "(guessed; name others with --input, --expected)" in guessed.stderr


def test_evolve_reads_a_csv(tmp_path: Path) -> None:
    (tmp_path / "amounts.py").write_text("def double(n: int) -> int:\n    return n + n + 1\n")
    rows = "".join(f"{n},{2 * n}\n" for n in range(40))
    (tmp_path / "rows.csv").write_text("input,expected\n" + rows)
    words = ("evolve", "amounts:double", "--data", "rows.csv", "--dry-run", "--iterations", "4")
    done = whet_command(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "score 0 as it stands" in done.stdout
