# ruff: noqa: E501 - one shape a line
"""Secrets as tools of thirty ecosystems write them: a kind of secret, in the way in which some tool prints a name and a value.

Kinds and ways are halved apart: the held-back half has neither a kind nor a way of the half that was looked at.  To
each half come lines that follow no such pattern (protocols, mails, shells), halved by a shuffle.  The same ways
with harmless kinds are the look-alikes: telephone and account numbers of people are among those, because a record of
an agent that answers about them is nothing without them, and who a person is can be erased.  Values are drawn
anew; docs/decisions/058 has the figures.
"""

from __future__ import annotations

import base64
import html
import json
import quopri
import random
import urllib.parse
from collections.abc import Callable, Sequence

from secrets_corpus import (
    BASE64,
    CAPITAL,
    DIGITS,
    HEX,
    LOWER,
    SMALL,
    UPPER,
    WEB,
    WORD,
    Draw,
    Labelled,
    join,
    jwt,
    number,
    of,
    some_uuid,
)
from secrets_fresh import groups, human, season

Kind = tuple[str, Draw]
"""The words of its name, and its value."""
Way = tuple[str, Callable[[str, str], str], Callable[[str], str]]
"""What it is, the text of a name and a value, and what the value looks like there."""

B44, B88 = join(of(BASE64, 43), "="), join(of(BASE64, 86), "==")

KINDS: list[Kind] = [
    ("password", human),
    ("db password", of(WORD, 16)),
    ("admin passwd", join(of(WORD, 9), "!", of(DIGITS, 2))),
    ("passphrase", join(of(LOWER, 6), "-", of(LOWER, 5), "-", of(LOWER, 7), of(DIGITS, 2))),
    ("pwd", season),
    ("api key", of(SMALL, 32)),
    ("secret access key", of(BASE64, 40)),
    ("client secret", of(WEB, 40)),
    ("auth token", of(HEX, 32)),
    ("access token", of(WORD, 48)),
    ("refresh token", join("1//0", of(WEB, 60))),
    ("bearer token", jwt),
    ("signing secret", of(HEX, 64)),
    ("webhook secret", join("whsec_", of(WORD, 32))),
    ("encryption key", B44),
    ("secret key base", of(HEX, 128)),
    ("storage account key", B88),
    ("session secret", of(WORD, 24)),
    ("private token", join("glpat-", of(WEB, 20))),
    ("registry token", join("npm_", of(WORD, 36))),
    ("github token", join("ghp_", of(WORD, 36))),
    ("app password", groups(LOWER, 4, 4)),
    ("deploy key", of(WORD, 40)),
    ("master key", of(HEX, 32)),
    ("smtp password", join("SG.", of(WEB, 22), ".", of(WEB, 43))),
    ("service role key", jwt),
    ("consumer secret", of(WORD, 50)),
    ("shared secret", of(WORD, 20)),
    ("pre shared key", of(WORD, 22)),
    ("bot token", join(of(DIGITS, 10), ":AA", of(WEB, 33))),
    ("license secret", groups(CAPITAL, 5, 5)),
    ("totp secret", of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 32)),
    ("keystore password", of(WORD, 11)),
    ("credentials", of(WORD, 36)),
    ("hmac key", B44),
    ("recovery code", groups(SMALL, 5, 2)),
    ("jwt secret", of(WORD + "!@#%^*", 32)),
    ("vault token", join("hvs.", of(WEB, 90))),
    ("pat", of(SMALL, 52)),
    ("application secret", join(of(WORD, 3), "8Q~", of(WEB, 34))),
]
"""Secrets that a name tells, or their vendor's form."""

HARMLESS_KINDS: list[Kind] = [
    ("request id", some_uuid),
    ("commit", of(HEX, 40)),
    ("etag", of(HEX, 32)),
    ("trace id", of(HEX, 32)),
    ("checksum", of(HEX, 64)),
    ("image digest", join("sha256:", of(HEX, 64))),
    ("model", join("gpt-4o-2024-", number(10, 12), "-", number(10, 28))),
    ("max tokens", number(100, 9999)),
    ("prompt tokens", number(10, 99999)),
    ("next page token count", number(1, 99)),
    ("user name", join("kim", number(10, 999))),
    ("key name", join("orders-", number(1, 99))),
    ("primary key", join("order_id_", number(1, 9))),
    ("iban", join("DE", number(10, 99), number(10**17, 10**18 - 1))),
    ("phone", join("+49 30 ", number(10**6, 10**7))),
    ("mobile", join("+1 (415) 555-0", number(100, 199))),
    ("order number", join("PO-", number(10000, 99999), "-", of(UPPER, 2))),
    ("tracking number", join("1Z", of(CAPITAL, 16))),
    ("invoice", join("INV-2026-", number(1000, 9999))),
    ("version", join(number(1, 9), ".", number(0, 40), ".", number(0, 40))),
    ("file name", join("report_", number(2019, 2026), "_", of(LOWER, 5), ".pdf")),
    ("address", join(number(1, 99), " High Street")),
    ("password policy", join("min", number(8, 16))),
    ("token type", join("kind", number(1, 9))),
    ("secret name", join("prod/orders/", of(LOWER, 5))),
    ("author", join("Dana ", of(LOWER, 6))),
    ("hash", of(HEX, 40)),
    ("message id", join(of(HEX, 16), "@mail.example.org")),
    ("build id", join(number(2020, 2026), ".", number(1, 12), ".", of(HEX, 7))),
    ("keyboard", join("layout-", of(LOWER, 2))),
    ("session length", join(number(10, 90), "m")),
    ("public key", join("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI", of(BASE64, 43))),
    ("color", join("#", of(HEX, 6))),
    ("slug", join(of(LOWER, 5), "-", of(LOWER, 7), "-", number(1, 99))),
    ("passenger", join("Seat ", number(1, 40), "C")),
    ("authority", join("Bezirksamt ", of(LOWER, 6))),
    ("tokenizer", join("cl", number(10, 99), "k_base")),
    ("key rate", join(number(1, 5), ".", number(10, 99), " %")),
    ("thumbprint", of("0123456789ABCDEF", 40)),
    ("bucket", join("assets-eu-", of(LOWER, 6), number(10, 99))),
]
"""What no one minds."""


def snake(name: str) -> str:
    return name.replace(" ", "_")


def upper(name: str) -> str:
    return snake(name).upper()


def camel(name: str) -> str:
    first, *rest = name.split()
    return first + "".join(word.capitalize() for word in rest)


def pascal(name: str) -> str:
    return "".join(word.capitalize() for word in name.split())


def kebab(name: str) -> str:
    return name.replace(" ", "-")


def header(name: str) -> str:
    return "X-" + "-".join(word.capitalize() for word in name.split())


def dotted(name: str) -> str:
    return name.replace(" ", ".")


def as_is(value: str) -> str:
    return value


def percent(value: str) -> str:
    return urllib.parse.quote(value, safe="")


def soft(value: str) -> str:
    """In quoted-printable."""
    return quopri.encodestring(value.encode(), quotetabs=False).decode().replace("=\n", "")


def unicoded(value: str) -> str:
    """As JSON escapes signs for HTML."""
    return value.replace("=", "\\u003d").replace("&", "\\u0026").replace("+", "\\u002b").replace("/", "\\/")


def b64(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


WAYS: list[Way] = [
    ("env file", lambda n, v: f"# .env\nAPP_ENV=prod\nACME_{upper(n)}={v}\nPORT=8080\n", as_is),
    ("export", lambda n, v: f"$ export {upper(n)}='{v}'\n$ make deploy", as_is),
    ("fish", lambda n, v: f"set -gx {upper(n)} {v}", as_is),
    ("powershell", lambda n, v: f'PS C:\\app> $env:{upper(n)} = "{v}"', as_is),
    ("cmd", lambda n, v: f"C:\\> setx {upper(n)} {v}\r\nSUCCESS: Specified value was saved.", as_is),
    ("json", lambda n, v: json.dumps({"host": "db1", camel(n): v, "port": 5432}), as_is),
    ("json escaped once", lambda n, v: json.dumps({"body": json.dumps({snake(n): v, "n": 1})}), as_is),
    ("json escaped twice", lambda n, v: json.dumps(json.dumps({"log": json.dumps({kebab(n): v})})), as_is),
    ("json for html", lambda n, v: f'{{"cfg":{{"{camel(n)}":"{unicoded(v)}"}}}}', unicoded),
    ("yaml", lambda n, v: f"database:\n  host: db1\n  {snake(n)}: {v}\n  pool: 5\n", as_is),
    ("yaml quoted", lambda n, v: f"auth:\n  - user: svc\n    {camel(n)}: '{v}'\n", as_is),
    ("helm", lambda n, v: f"helm upgrade web ./chart --set app.{camel(n)}={v} --wait", as_is),
    ("toml", lambda n, v: f'[service.mail]\nhost = "mx"\n{snake(n)} = "{v}"\n', as_is),
    ("ini", lambda n, v: f"[client]\nuser = svc\n{snake(n)} = {v}\n", as_is),
    ("properties", lambda n, v: f"spring.datasource.user=sa\nspring.datasource.{kebab(n)}={v}\n", as_is),
    (
        "xml element",
        lambda n, v: f"<server><id>x</id><{camel(n)}>{html.escape(v)}</{camel(n)}></server>",
        html.escape,
    ),
    ("xml key value", lambda n, v: f'<add key="Acme:{pascal(n)}" value="{html.escape(v)}" />', html.escape),
    (
        "plist",
        lambda n, v: f"<dict>\n<key>{pascal(n)}</key>\n<string>{html.escape(v)}</string>\n</dict>",
        html.escape,
    ),
    (
        "html input",
        lambda n, v: f'<input type="hidden" name="{snake(n)}" value="{html.escape(v)}">',
        html.escape,
    ),
    (
        "html data",
        lambda n, v: f'<div id="app" data-{kebab(n)}="{html.escape(v)}" data-page="2"></div>',
        html.escape,
    ),
    ("html table", lambda n, v: f"<tr><th>{n.capitalize()}</th><td>{html.escape(v)}</td></tr>", html.escape),
    (
        "html definition",
        lambda n, v: f"<dt>{n.capitalize()}:</dt> <dd><code>{html.escape(v)}</code></dd>",
        html.escape,
    ),
    ("query", lambda n, v: f"GET /v2/items?page=2&{snake(n)}={percent(v)}&sort=asc HTTP/1.1", percent),
    (
        "nginx",
        lambda n, v: (
            f'10.0.0.7 - - [28/Nov/2026:01:02:03 +0000] "GET /cb?{camel(n)}={percent(v)} HTTP/2.0" 200 17 "-" "curl/8.5"'
        ),
        percent,
    ),
    (
        "url in url",
        lambda n, v: (
            f"https://sso.example.org/go?next={percent('https://app.example.org/?' + snake(n) + '=' + percent(v))}"
        ),
        lambda v: percent(percent(v)),
    ),
    ("form body", lambda n, v: f"grant=x&{snake(n)}={percent(v)}&scope=all", percent),
    (
        "multipart",
        lambda n, v: f'--b0\r\nContent-Disposition: form-data; name="{snake(n)}"\r\n\r\n{v}\r\n--b0--',
        as_is,
    ),
    (
        "curl verbose",
        lambda n, v: f"> GET /v1/me HTTP/2\n> Host: api.example.org\n> {header(n)}: {v}\n> Accept: */*",
        as_is,
    ),
    (
        "headers of httpx",
        lambda n, v: f"Headers([('host', 'api.example.org'), ('{header(n).lower()}', '{v}')])",
        as_is,
    ),
    ("headers as bytes", lambda n, v: f"[(b'host', b'x'), (b'{header(n).lower()}', b'{v}')]", as_is),
    ("har", lambda n, v: json.dumps({"headers": [{"name": header(n), "value": v}], "cookies": []}), as_is),
    ("postman", lambda n, v: json.dumps({"values": [{"key": snake(n), "value": v, "enabled": True}]}), as_is),
    ("ecs task", lambda n, v: json.dumps({"environment": [{"value": v, "name": upper(n)}]}), as_is),
    ("docker inspect", lambda n, v: json.dumps({"Env": ["PATH=/usr/bin", f"{upper(n)}={v}"]}), as_is),
    ("docker run", lambda n, v: f"docker run -d -e {upper(n)}={v} -p 80:80 acme/web:1", as_is),
    ("dockerfile", lambda n, v: f"FROM alpine\nENV {upper(n)} {v}\nRUN make", as_is),
    ("k8s env", lambda n, v: f"env:\n- name: {upper(n)}\n  value: {v}\n- name: LOG\n  value: info", as_is),
    (
        "k8s secret",
        lambda n, v: f"apiVersion: v1\nkind: Secret\ndata:\n  {kebab(n)}: {b64(v)}\ntype: Opaque",
        b64,
    ),
    (
        "terraform plan",
        lambda n, v: f'  + resource "acme_db" "x" {{\n      + {snake(n)} = "{v}"\n      + size = 3',
        as_is,
    ),
    (
        "tfvars heredoc",
        lambda n, v: f'variable "{snake(n)}" {{\n  type    = string\n  default = "{v}"\n}}',
        as_is,
    ),
    ("python repr", lambda n, v: f"DEBUG config={{'host': 'db1', '{snake(n)}': '{v}', 'n': 3}}", as_is),
    ("python call", lambda n, v: f'    client = Client("db1", {snake(n)}="{v}", timeout=3)', as_is),
    (
        "traceback locals",
        lambda n, v: f"│ │ {snake(n)} = '{v}'                 │ │\n│ │ host = 'db1'  │ │",
        as_is,
    ),
    ("dataclass repr", lambda n, v: f"Settings(host='db1', {snake(n)}='{v}', retries=2)", as_is),
    (
        "pydantic error",
        lambda n, v: (
            f"port\n  Input should be a valid integer [type=int_parsing, input_value={{'{snake(n)}': '{v}', 'port': 'x'}}, input_type=dict]"
        ),
        as_is,
    ),
    ("go struct", lambda n, v: f"cfg=&{{Host:db1 Port:5432 {pascal(n)}:{v} Debug:false}}", as_is),
    ("go quoted", lambda n, v: f'main.Config{{Host:"db1", {pascal(n)}:"{v}", N:3}}', as_is),
    ("java", lambda n, v: f"DataSource[url=jdbc:x, {camel(n)}={v}, max=5]", as_is),
    ("java setter", lambda n, v: f'config.set{pascal(n)}("{v}");', as_is),
    ("kotlin map", lambda n, v: f'mapOf("host" to "db1", "{camel(n)}" to "{v}")', as_is),
    ("ruby hash", lambda n, v: f'Parameters: {{"utf8"=>"1", "{snake(n)}"=>"{v}", "commit"=>"Go"}}', as_is),
    ("ruby symbols", lambda n, v: f"Acme.configure host: 'db1', {snake(n)}: '{v}'", as_is),
    (
        "php print_r",
        lambda n, v: f"Array\n(\n    [host] => db1\n    [{snake(n)}] => {v}\n    [n] => 3\n)",
        as_is,
    ),
    ("php var_dump", lambda n, v: f'array(1) {{\n  ["{snake(n)}"]=>\n  string({len(v)}) "{v}"\n}}', as_is),
    ("php define", lambda n, v: f"define( '{upper(n)}', '{v}' );", as_is),
    ("node inspect", lambda n, v: f"{{\n  host: 'db1',\n  {camel(n)}: '{v}',\n  n: 3\n}}", as_is),
    ("js const", lambda n, v: f"const {camel(n)} = `{v}`; // TODO move", as_is),
    ("rust debug", lambda n, v: f'Config {{ host: "db1", {snake(n)}: Some("{v}"), n: 3 }}', as_is),
    ("csharp", lambda n, v: f'services.Configure(o => o.{pascal(n)} = "{v}");', as_is),
    ("elixir", lambda n, v: f'config :acme, Acme.Repo, host: "db1", {snake(n)}: "{v}"', as_is),
    ("perl", lambda n, v: f"my %cfg = (host => 'db1', {snake(n)} => '{v}');", as_is),
    ("logfmt", lambda n, v: f'ts=2026-11-28T01:02:03Z level=info msg="dialing" {snake(n)}={v} n=3', as_is),
    (
        "log sentence",
        lambda n, v: f"2026-11-28 01:02:03,004 INFO [main] c.a.Boot - using {n} {v} for db1",
        as_is,
    ),
    ("log brackets", lambda n, v: f"[worker-3] {n}=[{v}] host=[db1]", as_is),
    ("sql insert", lambda n, v: f"INSERT INTO settings (name, value) VALUES ('{snake(n)}', '{v}');", as_is),
    ("sql row", lambda n, v: f"-[ RECORD 1 ]---\nid | 7\n{snake(n)} | {v}\nplan | pro", as_is),
    ("csv", lambda n, v: f"host,{snake(n)},city\ndb1,{v},Ulm\n", as_is),
    ("tsv", lambda n, v: f"host\t{snake(n)}\tcity\ndb1\t{v}\tUlm\n", as_is),
    ("markdown table", lambda n, v: f"| host | {n.capitalize()} |\n|---|---|\n| db1 | `{v}` |", as_is),
    ("markdown list", lambda n, v: f"- **{n.capitalize()}:** `{v}`\n- **Host:** db1", as_is),
    ("mail", lambda n, v: f"Hi Kim,\n\nhere is the {n} for the new box:\n\n{v}\n\nBest,\nDana", as_is),
    ("mail quoted", lambda n, v: f"> Host: db1\n> {n.capitalize()}: {v}\n> Thanks", as_is),
    (
        "mail quoted-printable",
        lambda n, v: f"Content-Transfer-Encoding: quoted-printable\n\n{n.capitalize()}: {soft(v)}\n",
        soft,
    ),
    ("chat", lambda n, v: f"kim 10:02 AM\nthe {n} is {v}, dont share it", as_is),
    ("question", lambda n, v: f'Why does it say 401? My {n} is "{v}".', as_is),
    ("flag", lambda n, v: f"acme-cli login --user svc --{kebab(n)} {v} --region eu", as_is),
    ("flag equals", lambda n, v: f"ps aux: svc 311 0.0 java -jar app.jar --{kebab(n)}={v}", as_is),
    ("java system property", lambda n, v: f"java -Dacme.{dotted(n)}={v} -Xmx1g -jar app.jar", as_is),
    ("systemd", lambda n, v: f'[Service]\nEnvironment="{upper(n)}={v}"\nExecStart=/usr/bin/web', as_is),
    ("actions", lambda n, v: f"Run ./deploy.sh\n  env:\n    {upper(n)}: {v}\n    CI: true", as_is),
    ("ansible", lambda n, v: f"ok: [db1] => (item={{'key': '{snake(n)}', 'value': '{v}'}})", as_is),
    ("redis", lambda n, v: f'1764291723.123 [0 127.0.0.1:5001] "HSET" "cfg" "{snake(n)}" "{v}"', as_is),
    ("etcd", lambda n, v: f"etcdctl put /prod/web/{kebab(n)} {v}\nOK", as_is),
    ("consul", lambda n, v: json.dumps([{"Key": f"web/{kebab(n)}", "Value": b64(v), "Flags": 0}]), b64),
    (
        "aws ssm",
        lambda n, v: f'aws ssm put-parameter --name /prod/{kebab(n)} --type SecureString --value "{v}"',
        as_is,
    ),
    ("gh secret", lambda n, v: f"gh secret set {upper(n)} --body {v}", as_is),
    ("heroku", lambda n, v: f"heroku config:set {upper(n)}={v} -a web", as_is),
    ("heroku listing", lambda n, v: f"=== web Config Vars\n{upper(n)}:   {v}\nTZ:   UTC", as_is),
    ("python assert", lambda n, v: f"E   AssertionError: assert {{'{snake(n)}': '{v}'}} == {{}}", as_is),
    (
        "diff",
        lambda n, v: f'--- a/config.py\n+++ b/config.py\n-{upper(n)} = os.environ["X"]\n+{upper(n)} = "{v}"',
        as_is,
    ),
    ("graphql", lambda n, v: f'mutation {{ login(user: "kim", {camel(n)}: "{v}") {{ ok }} }}', as_is),
    (
        "tool call",
        lambda n, v: json.dumps(
            {"function": {"name": "connect", "arguments": json.dumps({"host": "db1", snake(n): v})}}
        ),
        as_is,
    ),
    (
        "otel attribute",
        lambda n, v: json.dumps({"key": f"app.{snake(n)}", "value": {"stringValue": v}}),
        as_is,
    ),
]
"""How tools write a name and its value."""


def basic(draw: random.Random) -> str:
    return b64(f"svc{of(LOWER, 3)(draw)}:{of(WORD, 14)(draw)}")


def digits(*lengths: int) -> Draw:
    return lambda draw: " ".join(of(DIGITS, length)(draw) for length in lengths)


LINES: list[tuple[str, Draw]] = [
    ("postgresql://svc:{}@db1.example.org:5432/orders?sslmode=require", of(WORD, 14)),
    ("could not connect: mysql+pymysql://root:{}@10.0.0.4/shop", human),
    ("mongodb+srv://app:{}@cluster0.ab12c.mongodb.net/?retryWrites=true", of(WORD, 16)),
    ("redis://:{}@cache:6379/0", of(WORD, 20)),
    ("rediss://default:{}@eu1-x.upstash.io:6379", of(WORD, 32)),
    ("amqps://guest:{}@mq.example.org/vhost", of(WORD, 18)),
    (
        "Server=tcp:x.database.windows.net,1433;Initial Catalog=a;User ID=sa;Password={};Encrypt=True;",
        of(WORD, 14),
    ),
    ("Data Source=ora1;User Id=scott;Password={};", human),
    ("DefaultEndpointsProtocol=https;AccountName=acme;AccountKey={};EndpointSuffix=core.windows.net", B88),
    ("Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={}", B44),
    (
        "https://acme.blob.core.windows.net/c/a.csv?sv=2024-11-04&sp=r&se=2027-01-01&sig={}",
        join(of(WORD, 40), "%2B", of(WORD, 2), "%3D"),
    ),
    ("https://b.s3.amazonaws.com/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature={}", of(HEX, 64)),
    ("jdbc:postgresql://db1/orders?user=svc&password={}", of(WORD, 12)),
    ("jdbc:sqlserver://db1;databaseName=a;user=sa;password={};encrypt=true", of(WORD, 12)),
    ("jdbc:oracle:thin:scott/{}@//db1:1521/orcl", of(WORD, 12)),
    ("sqlplus scott/{}@orcl", of(WORD, 11)),
    ("git clone https://x-access-token:{}@github.com/acme/web.git", join("ghs_", of(WORD, 36))),
    ("git remote -v\norigin https://kim:{}@git.example.org/a.git (fetch)", of(WORD, 20)),
    ("curl -u svc:{} https://api.example.org", of(WORD, 14)),
    ("curl -H 'Authorization: Basic {}' https://api.example.org", basic),
    ("Authorization: Bearer {}", jwt),
    ("authorization: token {}", of(HEX, 40)),
    ("Proxy-Authorization: Basic {}", basic),
    ("http_proxy=http://kim:{}@proxy.example.org:3128", of(WORD, 10)),
    ("Cookie: theme=dark; sessionid={}; lang=en", of(SMALL, 32)),
    ("Set-Cookie: connect.sid=s%3A{}; Path=/; HttpOnly", join(of(WEB, 32), ".", of(WORD, 43))),
    ("set-cookie: __Secure-next-auth.session-token={}; Path=/", of(WEB, 80)),
    ("Set-Cookie: laravel_session={}; expires=Sat", join("eyJpdiI6I", of(WORD, 150))),
    ("mysql -u root -p{} shop < dump.sql", of(WORD, 12)),
    ("PGPASSWORD={} psql -h db1 -U svc", of(WORD, 12)),
    ("sshpass -p '{}' ssh root@db1", human),
    ("echo {} | docker login -u acme --password-stdin", of(WORD, 24)),
    ("docker login -u acme -p {} registry.example.org", of(WORD, 20)),
    ('{{"auths": {{"ghcr.io": {{"auth": "{}"}}}}}}', basic),
    ("//registry.npmjs.org/:_authToken={}", some_uuid),
    ("//npm.example.org/:_auth={}", basic),
    ("machine api.example.org login kim password {}", of(WORD, 16)),
    ("[pypi]\nusername = __token__\npassword = pypi-{}", of(WEB, 150)),
    ("twine upload -u __token__ -p {} dist/*", join("pypi-AgEIcHlwaS5vcmc", of(WEB, 120))),
    ('network={{\n  ssid="Home"\n  psk="{}"\n}}', of(WORD, 12)),
    ("WIFI:T:WPA;S:Home;P:{};;", of(WORD, 12)),
    ("otpauth://totp/Acme:kim?secret={}&issuer=Acme", of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 32)),
    ("[Interface]\nPrivateKey = {}\nAddress = 10.0.0.2/32", B44),
    ("PresharedKey = {}", B44),
    ("enable secret 5 {}", join("$1$", of(WORD, 4), "$", of(WORD, 22))),
    ("username admin privilege 15 password 0 {}", of(WORD, 10)),
    ("snmp-server community {} RO", of(WORD, 10)),
    ("radius-server key {}", of(WORD, 14)),
    ("root:{}:19700:0:99999:7:::", join("$6$", of(WORD, 8), "$", of(WORD + "./", 86))),
    ("kim:{}", join("$apr1$", of(WORD, 8), "$", of(WORD, 22))),
    ("kim:{}", join("$2y$10$", of(WORD + "./", 53))),
    ("smbclient //nas/share -U kim%{}", of(WORD, 10)),
    ("mount -t cifs //nas/s /mnt -o username=kim,password={}", of(WORD, 10)),
    ("net use Z: \\\\nas\\share {} /user:kim", of(WORD, 10)),
    ("ldapsearch -D cn=admin,dc=x -w {} -b dc=x", of(WORD, 11)),
    ("AUTH LOGIN\n334 VXNlcm5hbWU6\na2lt\n334 UGFzc3dvcmQ6\n{}", lambda draw: b64(of(WORD, 12)(draw))),
    ("AUTH PLAIN {}", lambda draw: b64(f"\0kim\0{of(WORD, 12)(draw)}")),
    ("a1 LOGIN kim@example.org {}", of(WORD, 12)),
    ("PASS {}\r\n230 Login successful", of(WORD, 12)),
    ("ftp://kim:{}@ftp.example.org/pub", of(WORD, 12)),
    (
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{}";',
        of(WORD, 14),
    ),
    ("ALTER USER 'kim'@'%' IDENTIFIED BY '{}';", of(WORD, 12)),
    ("CREATE ROLE svc LOGIN PASSWORD '{}'", of(WORD, 12)),
    ("openssl enc -aes-256-cbc -k {} -in a", of(WORD, 16)),
    ("openssl pkcs12 -export -passout pass:{}", of(WORD, 12)),
    ("keytool -storepass {} -list", of(WORD, 10)),
    ("7z x a.7z -p{}", of(WORD, 12)),
    ("unzip -P {} a.zip", of(WORD, 12)),
    ("net user kim {} /add", human),
    ("echo 'root:{}' | chpasswd", of(WORD, 12)),
    ("vncpasswd <<< {}", of(WORD, 8)),
    ("restic: RESTIC_PASSWORD={} restic backup", of(WORD, 20)),
    ("vault login {}", join("hvs.", of(WEB, 24))),
    ("Unseal Key 1: {}", B44),
    ("Initial Root Token: {}", join("s.", of(WORD, 24))),
    ("AWS_SESSION_TOKEN={}", join("IQoJb3JpZ2luX2Vj", of(BASE64, 300))),
    ("aws configure set aws_secret_access_key {}", of(BASE64, 40)),
    ("AKIA{}", of(CAPITAL, 16)),
    ("AIza{} is what maps uses", of(WEB, 35)),
    ("https://hooks.slack.com/services/T0AB12CD3/B0AB12CD3/{}", of(WORD, 24)),
    ("https://discord.com/api/webhooks/123456789012345678/{}", of(WEB, 68)),
    ("https://api.telegram.org/bot123456789:{}/getMe", join("AA", of(WEB, 33))),
    ("https://acme.webhook.office.com/webhookb2/x@y/IncomingWebhook/{}/z", of(HEX, 32)),
    ("https://{}@o1.ingest.sentry.io/12", of(HEX, 32)),
    ("sk-ant-api03-{}", join(of(WEB, 93), "AA")),
    ("openai.api_key = 'sk-proj-{}'", of(WEB, 74)),
    ("hf_{}", of(WORD, 34)),
    ("xoxb-{}", join(of(DIGITS, 12), "-", of(DIGITS, 12), "-", of(WORD, 24))),
    ("sk_live_{}", of(WORD, 24)),
    ("dop_v1_{}", of(HEX, 64)),
    ("shpat_{}", of(HEX, 32)),
    ("AGE-SECRET-KEY-1{}", of("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58)),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\\n{}\\n-----END OPENSSH PRIVATE KEY-----", of(BASE64, 120)),
    ('"private_key": "-----BEGIN PRIVATE KEY-----\\nMIIE{}\\n-----END PRIVATE KEY-----\\n"', of(BASE64, 200)),
    ("PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n{}\nPrivate-MAC: 00", of(BASE64, 48)),
    ('{{"kty":"RSA","e":"AQAB","d":"{}"}}', of(WEB, 86)),
    ("<Modulus>x</Modulus><D>{}</D>", B88),
    ("Ihr neues Passwort lautet: {}", human),
    ("Das Initialkennwort ist {} (bitte ändern)", season),
    ("WLAN-Schlüssel: {}", of(DIGITS, 20)),
    ("Votre mot de passe provisoire : {}", human),
    ("Le code d'accès est {}.", of(WORD, 10)),
    ("Tu contraseña temporal es: {}", human),
    ("A sua senha é {}", human),
    ("La tua password temporanea: {}", human),
    ("Uw wachtwoord is {}", human),
    ("Twoje hasło to {}", human),
    ("Vaše heslo je {}", human),
    ("Ditt lösenord är {}", human),
    ("Salasanasi on {}", human),
    ("A jelszavad: {}", human),
    ("Parola ta este {}", human),
    ("Şifreniz: {}", human),
    ("Ваш пароль: {}", human),
    ("пароль от админки {}", human),
    ("Ο κωδικός σας είναι {}", human),
    ("您的密码是{}", human),
    ("初始密码:{}", human),
    ("パスワードは {} です", human),
    ("비밀번호는 {} 입니다", human),
    ("كلمة المرور: {}", human),
    ("הסיסמה שלך: {}", human),
    ("आपका पासवर्ड {} है", human),
    ("รหัสผ่าน: {}", human),
    ("Mật khẩu của bạn là {}", human),
    ("Kata sandi Anda: {}", human),
    ("Log in as kim / {}", human),
    ("user kim pass {}", human),
    ("creds: kim:{}", human),
    ("pw={}", human),
    ("try admin with {} as the password", human),
    ("I changed it from hunter2 to {} (the password)", human),
    ("Sign in with kim@example.org and {}.", human),
    ("Your verification code is {}", of(DIGITS, 6)),
    ("G-{} is your Google verification code.", of(DIGITS, 6)),
    ("Use {} as your one-time passcode", of(DIGITS, 6)),
    ("Dein Bestätigungscode: {}", of(DIGITS, 6)),
    ("Votre code de vérification est {}", of(DIGITS, 6)),
    ("the door code is {}#", of(DIGITS, 4)),
    ("alarm PIN {}", of(DIGITS, 4)),
    ("My PIN is {}", of(DIGITS, 4)),
    ("card {} exp 09/28 cvv 123", lambda draw: "4" + of(DIGITS, 15)(draw)),
    (
        "seed phrase: {}",
        lambda draw: " ".join(
            draw.sample(
                [
                    "abandon",
                    "ability",
                    "absent",
                    "lemon",
                    "orbit",
                    "velvet",
                    "canyon",
                    "robot",
                    "siren",
                    "zebra",
                    "tunnel",
                    "hockey",
                    "fiber",
                    "onion",
                ],
                12,
            )
        ),
    ),
    ("Reset: https://app.example.org/reset?token={}", of(WEB, 43)),
    ("https://app.example.org/users/password/edit?reset_password_token={}", of(WEB, 20)),
    ("magic link https://app.example.org/auth/verify?code={}&t=1", of(WEB, 43)),
    ("https://meet.example.org/j/812345678?pwd={}", of(WORD, 32)),
    ("Meeting ID: 812 3456 7890\nPasscode: {}", of(WORD, 8)),
    (
        "kubeadm join 10.0.0.1:6443 --token {} --discovery-token-ca-cert-hash sha256:ab",
        join(of(SMALL, 6), ".", of(SMALL, 16)),
    ),
    ("kubectl config set-credentials ci --token={}", jwt),
    ("kubectl create secret generic db --from-literal=pass={}", of(WORD, 14)),
    ("client-key-data: {}", lambda draw: "LS0tLS1CRUdJTi" + of(BASE64, 160)(draw)),
    ("docker swarm join --token {} 10.0.0.1:2377", join("SWMTKN-1-", of(SMALL, 50), "-", of(SMALL, 25))),
    ("tailscale up --authkey {}", join("tskey-auth-", of(WORD, 17), "-", of(WORD, 32))),
    ("cloudflared tunnel run --token {}", join("eyJhIjoi", of(WORD, 120))),
    ("ngrok config add-authtoken {}", join("2", of(WORD, 26), "_", of(WORD, 21))),
    ("flyctl auth token\nFlyV1 {}", join("fm2_", of(BASE64, 200))),
    ("gcloud auth print-access-token\nya29.{}", of(WEB, 120)),
    ("az login --service-principal -u app -p {} --tenant t", join(of(WORD, 3), "8Q~", of(WEB, 34))),
    ("<saml:Assertion>{}</saml:Assertion>", lambda draw: "PHNhbWw6QXNzZXJ0aW9u" + of(BASE64, 200)(draw)),
    ("SAMLResponse={}&RelayState=x", lambda draw: "PHNhbWxwOlJlc3Bvbn" + of(WORD, 200)(draw)),
    ("?code=200&id_token={}", jwt),
    ("localStorage.setItem('jwt', '{}')", jwt),
    ('sessionStorage: {{"oidc.user":"{}"}}', jwt),
    ("document.cookie = 'auth={}'", of(WEB, 40)),
    ("socket.emit('auth', {{t: '{}'}})", jwt),
    ('grpcurl -H "authorization: Bearer {}" x:443 list', of(WEB, 48)),
    ("MQTT CONNECT client=a username=u password={}", of(WORD, 12)),
    ('SIP: Digest username="kim", response="{}"', of(HEX, 32)),
    ("NTLM hash kim:1001:aad3b435b51404eeaad3b435b51404ee:{}:::", of(HEX, 32)),
    ("connect-string amqp://u:{}@h", of(WORD, 12)),
    ("nmcli dev wifi connect Home password {}", of(WORD, 12)),
    ("type: password_change, old: x, new: {}", human),
    ("Enter passphrase for key '/home/kim/.ssh/id_rsa': {}", human),
    ("[sudo] password for kim: {}", human),
    ('expect "Password:"; send "{}\\r"', of(WORD, 12)),
    ("page.fill('#password', '{}')", of(WORD, 12)),
    ('driver.find_element(By.NAME, "passwd").send_keys("{}")', of(WORD, 12)),
    ('{{"action": "type", "selector": "input[type=password]", "text": "{}"}}', human),
    ("cy.get('[data-test=password]').type('{}')", human),
    ('fill textbox "Password" with {}', human),
]
"""What follows no pattern of a name and a value."""

HARMLESS_LINES: list[tuple[str, Draw]] = [
    ("IBAN: DE{} BIC: COBADEFFXXX", digits(2, 4, 4, 4, 4, 2)),
    ("IBAN GB{}", join(of(DIGITS, 2), " NWBK ", digits(4, 4, 4, 2))),
    ("FR76{} bitte überweisen", of(DIGITS, 23)),
    ("Tel. +49 (0)30 {}", of(DIGITS, 8)),
    ("call 0171/{} tonight", of(DIGITS, 7)),
    ("Tél. : 01 {}", digits(2, 2, 2, 2)),
    ("phone (212) 555-{} ext. 9", of(DIGITS, 4)),
    ("+44 20 7946 {}", of(DIGITS, 4)),
    ("+81-3-{}", join(of(DIGITS, 4), "-", of(DIGITS, 4))),
    ("+91 98{}", join(of(DIGITS, 3), " ", of(DIGITS, 5))),
    ("手机 138{}", of(DIGITS, 8)),
    ("тел. +7 (495) {}", join(of(DIGITS, 3), "-", of(DIGITS, 2), "-", of(DIGITS, 2))),
    ("From: Kim Lee <kim{}@example.org>", number(1, 99)),
    ("To: dana+list{}@mail.example.org", number(1, 99)),
    ("Message-ID: <{}@mail.example.org>", of(HEX, 24)),
    ("DKIM-Signature: v=1; a=rsa-sha256; bh={};", B44),
    ("Received: by 2002:a05:6402:{} with SMTP id", of(HEX, 4)),
    ("Authentication-Results: mx; spf=pass; dkim=pass header.i=@x{}.org", number(1, 99)),
    ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{} kim@x", of(BASE64, 43)),
    ("SHA256:{} kim@x (ED25519)", of(BASE64, 43)),
    ("-----BEGIN CERTIFICATE-----\nMIID{}\n-----END CERTIFICATE-----", of(BASE64, 120)),
    ("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----", of(BASE64, 120)),
    ('integrity="sha384-{}" crossorigin', of(BASE64, 64)),
    ("data:image/png;base64,iVBORw0KGgo{}", of(BASE64, 120)),
    ('<img src="/static/logo.{}.svg">', of(HEX, 8)),
    ("https://example.org/p/{}?utm_source=x", of(WORD, 11)),
    ("https://www.youtube.com/watch?v={}", of(WEB, 11)),
    ("https://docs.google.com/document/d/{}/edit", of(WEB, 44)),
    ("git show {}", of(HEX, 40)),
    ("index {}..0000000 100644", of(HEX, 7)),
    ("FROM python@sha256:{}", of(HEX, 64)),
    ("arn:aws:iam::{}:role/web", of(DIGITS, 12)),
    ("i-0{} is running", of(HEX, 16)),
    ("vpc-{}", of(HEX, 17)),
    ("pod/web-{} restarted", join(of(SMALL, 9), "-", of(SMALL, 5))),
    ("trace 00-{}-00f067aa0ba902b7-01", of(HEX, 32)),
    ("chatcmpl-{}", of(WORD, 29)),
    ("call_{}", of(WORD, 24)),
    ("toolu_01{}", of(WORD, 22)),
    ("usage: total_tokens={}", number(100, 9999)),
    ("The password must have at least {} characters.", number(8, 16)),
    ("Passwort vergessen? Ticket {}", number(1000, 9999)),
    ("invalid password for user kim{}", number(1, 99)),
    ('password authentication failed for user "svc{}"', number(1, 99)),
    ("The secret of a good soup is {} minutes of patience", number(10, 90)),
    ("Access token expired {} seconds ago", number(10, 999)),
    ("API key missing (error {})", number(400, 499)),
    ("key {} not found in map", join("item_", number(1, 999))),
    ("press any key to continue ({})", number(1, 9)),
    ("foreign key (order_id) references orders{} (id)", number(1, 9)),
    ("grep -n token src/lexer{}.py", number(1, 9)),
    ("def test_password_{}(client):", of(LOWER, 6)),
    ("getpass.getpass('Password: ')  # line {}", number(1, 99)),
    ("password = os.environ['DB_PASSWORD_{}']", number(1, 9)),
    ("password: ${{{{ secrets.DB_{} }}}}", of(UPPER, 4)),
    ("token = request.headers.get('x-token-{}')", number(1, 9)),
    ("api_key: !vault secret/data/app{}", number(1, 9)),
    ("PASSWORD=<your password> # step {}", number(1, 9)),
    ("secretKeyRef: name: web-{}", of(LOWER, 5)),
    ("flight LH{} seat 12A, booking ABC123", number(100, 999)),
    ("ISBN 978-3-{}", join(of(DIGITS, 2), "-", of(DIGITS, 6), "-", of(DIGITS, 1))),
    ("VIN WVWZZZ1JZ{}", of(CAPITAL, 8)),
    ("Steuernummer 21/815/{}", of(DIGITS, 5)),
    ("room code names: {}", of(LOWER, 8)),
    ("zip code {}", of(DIGITS, 5)),
    ("exit code {}", number(1, 255)),
    ("status code {} from upstream", number(200, 599)),
    ("country code +{}", number(1, 99)),
    ("QR code {} scanned", number(1, 999)),
    ("error code E{}", of(DIGITS, 4)),
    ("pin {} of the connector is bent", number(1, 40)),
    ("pin the version to {}", join(number(1, 9), ".", number(1, 9), ".0")),
    ("session {} starts at nine", number(1, 9)),
    ("auth: OAuth 2.0, RFC {}", number(6000, 9999)),
    ("cursor=eyJpZCI6{}", of(WORD, 12)),
    ("next_page_token: none, page {}", number(1, 9)),
    ("login successful for kim{}", number(1, 99)),
    ("cookies: {} accepted", number(1, 99)),
    ("Kennzeichen B-KM {}", of(DIGITS, 4)),
    ("Das Passwort wurde am {}.11. geändert", number(1, 28)),
    ("Le mot de passe doit contenir {} caractères", number(8, 16)),
    ("La contraseña caduca en {} días", number(1, 90)),
    ("Пароль должен содержать {} символов", number(8, 16)),
    ("密码至少需要{}位", number(8, 16)),
    ("uuid {}", some_uuid),
    ("md5 {}  a.tar.gz", of(HEX, 32)),
    ("sha512-{} # npm", B88),
    ("Host key verification failed ({})", number(1, 9)),
    ('ETag: W/"{}"', of(HEX, 20)),
    ("X-Request-Id: {}", of(HEX, 32)),
    ("temperature 0.{}, top_p 1", number(1, 9)),
    ("mail me the key figures of Q{}", number(1, 4)),
    ("the keynote is in hall {}", number(1, 9)),
    ("secretary: Ms. Lee, room {}", number(100, 400)),
    ("compass heading {} degrees", number(1, 360)),
    ("bypass valve {} closed", number(1, 9)),
    ("tokenize: {} words", number(10, 9999)),
    ("public token ring, {} hosts", number(2, 99)),
    ("Python {} (main, x86_64)", join("3.", number(9, 14), ".", number(0, 9))),
]
"""Harmless lines, some of people and many with the words that secrets have."""

EACH = 3
"""Kinds for each way."""


def _shuffled(name: str, count: int) -> list[int]:
    order = list(range(count))
    random.Random(f"tools {name}").shuffle(order)
    return order


def _crossed(name: str, half: int, kinds: Sequence[Kind], secret: bool) -> list[Labelled]:
    """Each way of one half with some kinds of the same half."""
    ways, chosen = _shuffled("ways", len(WAYS))[half::2], _shuffled(name, len(kinds))[half::2]
    rows = []
    for place in ways:
        what, text, seen = WAYS[place]
        if what == "aws ssm" and not secret:
            continue  # a SecureString is declared to be one
        draw = random.Random(f"tools {name} {what}")
        for at in draw.sample(chosen, EACH):
            kind, make = kinds[at]
            value = make(draw)
            rows.append(Labelled(f"{what}: {kind}", text(kind, value), seen(value) if secret else ""))
    return rows


def _lines(name: str, half: int, lines: Sequence[tuple[str, Draw]], secret: bool) -> list[Labelled]:
    rows = []
    for place in _shuffled(name, len(lines))[half::2]:
        text, make = lines[place]
        value = make(random.Random(f"tools {name} {place}"))
        rows.append(Labelled(text[:40], text.format(value), value if secret else ""))
    return rows


def _half(half: int) -> tuple[list[Labelled], list[Labelled]]:
    return (
        _crossed("kinds", half, KINDS, True) + _lines("lines", half, LINES, True),
        _crossed("harmless kinds", half, HARMLESS_KINDS, False)
        + _lines("harmless lines", half, HARMLESS_LINES, False),
    )


TOOL_SETS: dict[str, tuple[list[Labelled], list[Labelled]]] = {
    "tools_shown": _half(0),
    "tools_held_back": _half(1),
}
"""Name of a half → texts with secrets, and harmless ones."""
