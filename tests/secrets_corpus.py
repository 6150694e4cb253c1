# ruff: noqa: E501 - one shape a line
"""Texts with one secret each, by shape, and harmless texts that look like them.

Every secret is drawn from a seeded generator by the shape that its vendor describes, so that no file holds what a
scanner would take for a key.  `SHAPES` gives shape → texts that hold a secret; half of the shapes were looked at while
the rules were written (`tuned`), the others only to count.
"""

from __future__ import annotations

import base64
import json
import random
import string
import uuid
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote
from zlib import crc32

UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
WORD = UPPER + LOWER + DIGITS
WEB = WORD + "-_"
HEX = "0123456789abcdef"
CAPITAL = UPPER + DIGITS
SMALL = LOWER + DIGITS
BASE64 = WORD + "+/"

Draw = Callable[[random.Random], str]


class Labelled(NamedTuple):
    """A text, and the secret in it that must not be left."""

    shape: str
    text: str
    secret: str


def of(alphabet: str, count: int) -> Draw:
    return lambda draw: "".join(draw.choices(alphabet, k=count))


def some_uuid(draw: random.Random) -> str:
    return str(uuid.UUID(int=draw.getrandbits(128), version=4))


def password(draw: random.Random) -> str:
    """As people choose them: a word, capitals, digits, a sign."""
    word = draw.choice(
        ["dragon", "Winter", "correct", "monkey", "Liverpool", "sunshine", "Tr0ub4dor", "hunter"]
    )
    return word + str(draw.randrange(10, 9999)) + draw.choice(["!", "#", "$", "", "?x", "@7", "*"])


def plain_word(draw: random.Random) -> str:
    return draw.choice(
        ["swordfish", "letmein", "qwertyuiop", "iloveyou", "trustno", "opensesame", "shadowfax"]
    )


def passphrase(draw: random.Random) -> str:
    return " ".join(
        draw.sample(["correct", "horse", "battery", "staple", "lunar", "velvet", "orbit", "cactus"], 4)
    )


def web(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def jwt(draw: random.Random) -> str:
    head = web({"alg": "HS256", "typ": "JWT"})
    return f"{head}.{web({'sub': of(HEX, 8)(draw), 'exp': draw.randrange(10**9)})}.{of(WEB, 43)(draw)}"


def jwe(draw: random.Random) -> str:
    return ".".join([web({"alg": "dir", "enc": "A256GCM"}), "", *(of(WEB, n)(draw) for n in (16, 90, 22))])


def pem(kind: str, lines: int = 6) -> Draw:
    def made(draw: random.Random) -> str:
        body = "\n".join(of(BASE64, 64)(draw) for _ in range(lines))
        return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"

    return made


def join(*parts: str | Draw) -> Draw:
    return lambda draw: "".join(part if isinstance(part, str) else part(draw) for part in parts)


def encoded(inner: Draw) -> Draw:
    return lambda draw: base64.b64encode(inner(draw).encode()).decode()


K32, K40, K64 = of(WORD, 32), of(WORD, 40), of(WORD, 64)
H32, H40, H64 = of(HEX, 32), of(HEX, 40), of(HEX, 64)

# Vendor → a key that is known by its own form.
KEYS: dict[str, Draw] = {
    "anthropic": join("sk-ant-api03-", of(WEB, 80)),
    "openai": join("sk-", of(WORD, 48)),
    "openai-project": join("sk-proj-", of(WEB, 100)),
    "openai-admin": join("sk-admin-", of(WEB, 80)),
    "openrouter": join("sk-or-v1-", H64),
    "deepseek": join("sk-", H32),
    "huggingface": join("hf_", of(WORD, 34)),
    "groq": join("gsk_", of(WORD, 52)),
    "xai": join("xai-", of(WORD, 80)),
    "replicate": join("r8_", of(WORD, 37)),
    "perplexity": join("pplx-", of(WORD, 48)),
    "fireworks": join("fw_", of(WORD, 24)),
    "together": join("tgp_v1_", of(WEB, 43)),
    "nvidia": join("nvapi-", of(WEB, 64)),
    "cerebras": join("csk-", of(SMALL, 48)),
    "langsmith": join("lsv2_pt_", H32, "_", of(HEX, 10)),
    "langfuse": join("sk-lf-", some_uuid),
    "tavily": join("tvly-", K32),
    "firecrawl": join("fc-", H32),
    "e2b": join("e2b_", H40),
    "pinecone": join("pcsk_", of(WORD, 6), "_", of(WORD, 62)),
    "elevenlabs": join("sk_", of(HEX, 48)),
    "aws-id": join("AKIA", of(CAPITAL, 16)),
    "aws-session-id": join("ASIA", of(CAPITAL, 16)),
    "aws-bedrock": join("ABSK", of(BASE64, 120)),
    "google-api": join("AIza", of(WEB, 35)),
    "google-oauth": join("ya29.a0", of(WEB, 120)),
    "google-client-secret": join("GOCSPX-", of(WEB, 28)),
    "google-refresh": join("1//0", of(WEB, 60)),
    "azure-ad-secret": join(of(WORD, 3), "8Q~", of(WEB, 34)),
    "azure-openai": join(of(WORD, 52), "JQQJ99", of(WORD, 26)),
    "digitalocean": join("dop_v1_", H64),
    "heroku": join("HRKU-AA", of(WEB, 58)),
    "netlify": join("nfp_", of(WORD, 36)),
    "fly": join("fo1_", of(WEB, 43)),
    "render": join("rnd_", of(WORD, 32)),
    "databricks": join("dapi", H32),
    "planetscale": join("pscale_tkn_", of(WEB, 43)),
    "supabase": join("sbp_", H40),
    "supabase-secret": join("sb_secret_", of(WEB, 31)),
    "vault": join("hvs.", of(WEB, 90)),
    "terraform": join(of(WORD, 14), ".atlasv1.", of(WEB, 67)),
    "doppler": join("dp.st.dev.", of(WORD, 43)),
    "onepassword": join("ops_eyJ", of(BASE64, 200)),
    "pulumi": join("pul-", H40),
    "tailscale": join("tskey-auth-", of(WORD, 12), "CNTRL-", of(WORD, 32)),
    "alibaba": join("LTAI5t", of(WORD, 18)),
    "github": join("ghp_", of(WORD, 36)),
    "github-oauth": join("gho_", of(WORD, 36)),
    "github-server": join("ghs_", of(WORD, 36)),
    "github-fine": join("github_pat_", of(WORD, 22), "_", of(WORD, 59)),
    "gitlab": join("glpat-", of(WEB, 20)),
    "gitlab-runner": join("glrt-", of(WEB, 20)),
    "bitbucket": join("ATBB", of(WORD, 32)),
    "atlassian": join("ATATT3xFfGF0", of(WEB, 170)),
    "npm": join("npm_", of(WORD, 36)),
    "pypi": join("pypi-AgEIcHlwaS5vcmc", of(WEB, 120)),
    "rubygems": join("rubygems_", of(HEX, 48)),
    "nuget": join("oy2", of(SMALL, 43)),
    "crates": join("cio", of(WORD, 32)),
    "docker": join("dckr_pat_", of(WEB, 27)),
    "jfrog": join("AKCp", of(WORD, 69)),
    "sonar": join("squ_", H40),
    "buildkite": join("bkua_", H40),
    "sourcegraph": join("sgp_", of(HEX, 16), "_", H40),
    "prefect": join("pnu_", of(SMALL, 36)),
    "postman": join("PMAK-", of(HEX, 24), "-", of(HEX, 34)),
    "slack-bot": join("xoxb-", of(DIGITS, 12), "-", of(DIGITS, 13), "-", of(WORD, 24)),
    "slack-app": join("xapp-1-A", of(CAPITAL, 10), "-", of(DIGITS, 13), "-", H64),
    "discord-bot": join("MTA", of(WORD, 21), ".G", of(WEB, 5), ".", of(WEB, 38)),
    "telegram": join(of("123456789", 10), ":AA", of(WEB, 33)),
    "twilio": join("SK", H32),
    "sendgrid": join("SG.", of(WEB, 22), ".", of(WEB, 43)),
    "mailgun": join("key-", H32),
    "mailchimp": join(H32, "-us14"),
    "brevo": join("xkeysib-", H64, "-", of(WORD, 16)),
    "resend": join("re_", of(WORD, 8), "_", of(WORD, 24)),
    "hubspot": join("pat-na1-", some_uuid),
    "stripe": join("sk_live_", of(WORD, 24)),
    "stripe-restricted": join("rk_test_", of(WORD, 99)),
    "stripe-webhook": join("whsec_", K32),
    "square": join("sq0csp-", of(WEB, 43)),
    "shopify": join("shpat_", H32),
    "plaid": join("access-sandbox-", some_uuid),
    "easypost": join("EZAK", of(WORD, 54)),
    "linear": join("lin_api_", of(WORD, 40)),
    "notion": join("ntn_", of(WORD, 46)),
    "airtable": join("pat", of(WORD, 14), ".", H64),
    "figma": join("figd_", of(WEB, 43)),
    "contentful": join("CFPAT-", of(WEB, 43)),
    "typeform": join("tfp_", of(WEB, 44)),
    "dropbox": join("sl.", of(WEB, 135)),
    "facebook": join("EAA", of(WORD, 150)),
    "newrelic": join("NRAK-", of(CAPITAL, 27)),
    "grafana": join("glsa_", K32, "_", of(HEX, 8)),
    "sentry": join("sntrys_eyJ", of(WORD, 100)),
    "posthog": join("phx_", of(WORD, 43)),
    "dynatrace": join("dt0c01.", of(CAPITAL, 24), ".", of(CAPITAL, 64)),
    "age": join("AGE-SECRET-KEY-1", of(CAPITAL, 58)),
    "jwt": jwt,
    "jwe": jwe,
}
AROUND_KEY = ("use {} please", '{{"messages": [{{"content": "try {} now"}}]}}', "Traceback: 401 for key {}.")

# Shape → where it stands, and what the secret is.
PLACED: dict[str, tuple[str, Draw]] = {
    "env-password": ("PATH=/usr/bin\nDB_PASSWORD={}\nHOME=/root", password),
    "env-pass": ("export SMTP_PASS={}", password),
    "env-quoted": ('export MYSQL_ROOT_PASSWORD="{}"', password),
    "env-pgpassword": ("PGPASSWORD={} psql -h db", password),
    "env-word": ("POSTGRES_PASSWORD={}\nPOSTGRES_DB=app", plain_word),
    "env-api-key": ("MISTRAL_API_KEY={}", K32),
    "env-cohere": ("export CO_API_KEY='{}'", K40),
    "env-datadog": ("DD_API_KEY={}", H32),
    "env-datadog-app": ("DD_APP_KEY={}", H40),
    "env-any-key": ("ALGOLIA_ADMIN_KEY={}", H32),
    "env-vendor-key": ("LLAMA_CLOUD_KEY={}", K40),
    "env-secret": ("DJANGO_SECRET_KEY={}", of(WORD + "!#%^*", 50)),
    "env-token": ("GITHUB_TOKEN={}", H40),
    "env-numbered": ("API_KEY_2={}", K32),
    "env-staging": ("STRIPE_SECRET_KEY_STAGING={}", K32),
    "env-wandb": ("WANDB_API_KEY={}", H40),
    "env-cloudflare": ("CLOUDFLARE_API_TOKEN={}", of(WEB, 40)),
    "env-aws-secret": ("AWS_SECRET_ACCESS_KEY={}", of(BASE64, 40)),
    "env-aws-session": ("AWS_SESSION_TOKEN={}", of(BASE64, 300)),
    "env-docker": ("docker run -e ADMIN_PASSWORD={} -p 80:80 app", password),
    "aws-ini": ("[default]\naws_secret_access_key = {}\n", of(BASE64, 40)),
    "yaml-password": ("db:\n  user: app\n  password: {}\n  port: 5432\n", password),
    "yaml-word": ("db:\n  password: {}\n  port: 5432\n", plain_word),
    "yaml-quoted": ("auth:\n  clientSecret: '{}'\n", K40),
    "yaml-api-key": ("openai:\n  api-key: {}\n", K40),
    "toml": ('[server]\nsecret_key = "{}"\n', K64),
    "properties": ("spring.datasource.password={}\n", password),
    "ini-spaces": ("password   =   {}\n", password),
    "json-password": ('{{"user": "ann", "password": "{}"}}', password),
    "json-passphrase": ('{{"passphrase": "{}"}}', passphrase),
    "json-camel": ('{{"clientId": "web", "clientSecret": "{}"}}', K32),
    "json-access-token": ('{{"access_token": "{}", "expires_in": 3600}}', of(WEB, 60)),
    "json-refresh-token": ('{{"refreshToken":"{}"}}', some_uuid),
    "json-api-key": ('{{"apiKey":"{}"}}', K40),
    "json-private-key-id": ('{{"signing_key": "{}"}}', H64),
    "json-in-json": ('{{"arguments": "{{\\"api_key\\": \\"{}\\"}}"}}', K32),
    "json-in-json-deep": ('{{"a": "{{\\\\\\"db_password\\\\\\": \\\\\\"{}\\\\\\"}}"}}', password),
    "json-escaped-password": ('{{\\"password\\":\\"{}\\"}}', password),
    "python-kwarg": ('connect(host="db", password="{}")', password),
    "python-dict": ("{{'user': 'a', 'passwd': '{}'}}", password),
    "python-constant": ('SECRET_KEY = "{}"', K40),
    "python-annotated": ('api_key: str = "{}"', K40),
    "javascript": ("const apiSecret = '{}';", K40),
    "go": ('authToken := "{}"', K40),
    "ruby-hash": (':password => "{}"', password),
    "php": ("$db_password = '{}';", password),
    "java": ('.withPassword("x").setPassword("y"); String dbPassword = "{}";', password),
    "shell-flag": ("mytool login --user ann --password {}", password),
    "shell-flag-equals": ("mytool --api-key={}", K32),
    "shell-flag-token": ("helm login --auth-token {} registry", K40),
    "mysql-p": ("mysql -u root -p{} app", password),
    "sshpass": ("sshpass -p '{}' ssh root@host", password),
    "curl-user": ("curl -s -u admin:{} https://example.org/x", password),
    "redis-cli": ("redis-cli -h cache -a {} ping", password),
    "netrc": ("machine api.example.org\n  login ann\n  password {}\n", password),
    "netrc-line": ("machine example.org login ann password {}", password),
    "pgpass": ("postgres://app:{}@db.internal:5432/app", password),
    "url-mongodb": ("mongodb+srv://app:{}@cluster0.example.net/x", password),
    "url-redis": ("redis://:{}@cache:6379/0", K32),
    "url-amqp": ("amqps://guest:{}@mq:5671/", password),
    "url-https": ("git clone https://ann:{}@git.example.org/x.git", K32),
    "url-token-user": ("https://{}@git.example.org/x.git", K40),
    "url-api-key": ("GET https://example.org/v1?q=x&api_key={}&page=2", K32),
    "url-key": ("https://maps.example.org/js?key={}", K40),
    "url-token": ("https://example.org/reset?token={}", H40),
    "url-access-token": ("https://graph.example.org/me?access_token={}", K64),
    "url-signature": ("https://s3.example.org/x?X-Amz-Expires=60&X-Amz-Signature={}", H64),
    "url-sas": ("https://acct.blob.example.net/c?sv=2022-11-02&sp=r&sig={}", lambda d: quote(encoded(K32)(d), safe="")),
    "url-password": ("https://example.org/login?user=ann&password={}", password),
    "sentry-dsn": ("SENTRY: https://{}@o123.ingest.example.io/45", H32),
    "jdbc": ("jdbc:postgresql://db/app?user=app&password={}", password),
    "ado-net": ("Server=db;Database=app;User Id=sa;Password={};Encrypt=true", password),
    "ado-pwd": ("Driver=x;Uid=sa;Pwd={};", password),
    "azure-storage": (
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core.example.net",
        join(of(BASE64, 86), "=="),
    ),
    "azure-bus": ("Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey={}", join(of(BASE64, 43), "=")),
    "libpq": ("host=db port=5432 user=app password={} dbname=app", password),
    "header-bearer": ("Authorization: Bearer {}", K40),
    "header-bearer-json": ('{{"Authorization": "Bearer {}"}}', of(WEB, 60)),
    "header-token": ("Authorization: Token {}", H40),
    "header-apikey": ("authorization: ApiKey {}", K40),
    "header-plain": ("Authorization: {}", K40),
    "header-basic": ("Authorization: Basic {}", encoded(join("ann:", password))),
    "header-proxy": ("Proxy-Authorization: Basic {}", encoded(join("ann:", password))),
    "header-x-api-key": ("X-Api-Key: {}", K40),
    "header-api-key-azure": ("api-key: {}", H32),
    "header-ocp": ("Ocp-Apim-Subscription-Key: {}", H32),
    "header-auth-token": ("X-Auth-Token: {}", K40),
    "header-gitlab": ("PRIVATE-TOKEN: {}", of(WEB, 20)),
    "header-csrf": ("X-CSRF-Token: {}", K40),
    "header-curl": ("curl -H 'X-API-KEY: {}' https://example.org", K32),
    "header-pairs": ('[["accept", "*/*"], ["x-api-key", "{}"]]', K32),
    "header-tuples": ("[(b'accept', b'*/*'), (b'x-api-key', b'{}')]", K32),
    "header-har": ('{{"name": "x-api-key", "value": "{}"}}', K32),
    "header-aws": ("Authorization: AWS4-HMAC-SHA256 Credential=x/20260101/us, SignedHeaders=host, Signature={}", H64),
    "cookie": ("Cookie: theme=dark; sid={}", K40),
    "cookie-set": ("Set-Cookie: session={}; HttpOnly; Path=/", of(WEB, 60)),
    "cookie-json": ('{{"cookie": "auth={}"}}', K40),
    "cookie-php": ("PHPSESSID={}", of(SMALL, 26)),
    "cookie-java": ("JSESSIONID={}", of(CAPITAL, 32)),
    "xml-element": ("<user>a</user><password>{}</password>", password),
    "xml-add": ('<add key="ApiKey" value="{}" />', K32),
    "xml-attribute": ('<server id="x" username="a" password="{}"/>', password),
    "html-input": ('<input name="password" type="x" value="y"> password="{}"', password),
    "maven": ("<server><id>x</id><passphrase>{}</passphrase></server>", password),
    "sql-identified": ("CREATE USER 'ann' IDENTIFIED BY PASSWORD '{}'", password),
    "sql-alter": ("ALTER USER ann WITH PASSWORD '{}';", password),
    "prose-is": ("Sure, the wifi password is {} and the room is 4.", join(plain_word, of(DIGITS, 4))),
    "prose-colon": ("Here you go. Password: {}", password),
    "prose-word": ("Login: ann\nPassword: {}\nSee you", plain_word),
    "prose-markdown": ("**Password:** `{}`", password),
    "prose-secret": ("The client secret is {}.", K32),
    "prose-token": ("your API token: {}", K40),
    "prose-to": ("I have reset your password to {}.", join(plain_word, of(DIGITS, 3), "!")),
    "otp": ("OTP: {}", of("123456789", 6)),
    "cvv": ('{{"card": "x", "cvv": "{}"}}', lambda d: d.choice(["123", "914", "407"])),
    "mfa": ("mfa_code={}", of("123456789", 6)),
    "number-password": ('{{"password": {}}}', of("123456789", 8)),
    "number-passcode": ("passcode: {}", of("123456789", 6)),
    "seed-phrase": ('{{"seed_phrase": "{}"}}', lambda d: " ".join(d.sample(["abandon", "ability", "able", "about", "above", "absent", "absorb", "abstract", "absurd", "abuse", "access", "acid"], 12))),
    "recovery-code": ("recovery_code: {}", join(of(SMALL, 5), "-", of(SMALL, 5))),
    "pem-rsa": ("{}", pem("RSA PRIVATE KEY")),
    "pem-pkcs8": ("key:\n{}\n", pem("PRIVATE KEY")),
    "pem-encrypted": ("{}", pem("ENCRYPTED PRIVATE KEY")),
    "pem-openssh": ("{}", pem("OPENSSH PRIVATE KEY")),
    "pem-ec": ("{}", pem("EC PRIVATE KEY", 3)),
    "pgp": ("{}", pem("PGP PRIVATE KEY BLOCK")),
    "pem-json": ('{{"private_key": "{}"}}', lambda d: pem("PRIVATE KEY")(d).replace("\n", "\\n")),
    "pem-first-half": ("{}", lambda d: pem("RSA PRIVATE KEY")(d)[:250]),
    "pem-second-half": ("{}", lambda d: pem("RSA PRIVATE KEY")(d)[120:]),
    "putty": ("PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 2\n{}\nPrivate-MAC: x", join(of(BASE64, 64), "\n", of(BASE64, 64))),
    "wireguard": ("[Interface]\nPrivateKey = {}\n", join(of(BASE64, 43), "=")),
    "slack-webhook": ("https://hooks.slack.com/services/{}", join("T", of(CAPITAL, 8), "/B", of(CAPITAL, 8), "/", of(WORD, 24))),
    "discord-webhook": ("https://discord.com/api/webhooks/{}", join(of("123456789", 18), "/", of(WEB, 68))),
    "teams-webhook": ("https://x.webhook.office.com/webhookb2/{}", join(some_uuid, "@", some_uuid, "/IncomingWebhook/", H32)),
    "bcrypt": ("hash: {}", join("$2b$12$", of(WORD + "./", 53))),
    "shadow": ("root:{}:19000:0:99999:7:::", join("$6$", of(WORD, 12), "$", of(WORD + "./", 86))),
    "k8s-secret": ("stringData:\n  DATABASE_PASSWORD: {}\n", password),
    "npmrc": ("//registry.example.org/:_authToken={}", some_uuid),
    "pypirc": ("[pypi]\nusername = __token__\npassword = {}\n", join("tok-", of(WORD, 60))),
    "gradle": ("signingPassword={}", password),
    "terraform-var": ('variable "x" {{}}\ndb_password = "{}"', password),
    "ansible": ("ansible_become_pass: {}", password),
    "logfmt": ('level=info msg="login" password={} user=a', password),
    "repr": ("Settings(db='x', api_key='{}', retries=3)", K32),
    "query-dict": ("{{'api_key': ['{}'], 'q': ['x']}}", K32),
    "multipart": ('Content-Disposition: form-data; name="password"\r\n\r\nx\r\n password={}', password),
    "form": ("grant_type=password&username=ann&password={}&scope=x", lambda d: quote(password(d), safe="")),
    "oauth-form": ("grant_type=client_credentials&client_id=web&client_secret={}", K40),
    "tool-output": ("$ cat .env\nexport APP_SECRET={}\n$", K32),
    "german": ("Passwort: {}", password),
    "windows-env": ("set DB_PASSWORD={}", password),
    "powershell": ('$env:API_KEY = "{}"', K32),
    "csv-header-line": ("DATABASE_PASSWORD='{}';PORT=1", password),
}  # fmt: skip


FRESH: dict[str, tuple[str, Draw]] = {
    "fresh-helm": ("helm install x --set auth.rootPassword={},replicas=2", K32),
    "fresh-yaml-pass": ("db:\n  user: app\n  pass: '{}'\n", password),
    "fresh-jdbc": ("jdbc:mysql://db/x?user=root&password={}&ssl=true", password),
    "fresh-odbc": ("Driver=SQL;Server=db;Uid=sa;Pwd={};", password),
    "fresh-typescript": ('const apiKey: string = "{}";', K32),
    "fresh-go": ('cfg := Config{{Token: "{}"}}', K40),
    "fresh-x-auth": ("curl -H 'X-Auth-Token: {}' https://x", H32),
    "fresh-escaped": ('{{"arguments": "{{\\"api_key\\": \\"{}\\"}}"}}', K32),
    "fresh-wifi": ("Sure! The wifi password is {} and the guest one is open.", password),
    "fresh-german": ("Das Passwort lautet {}", lambda d: f"Sommer{d.randrange(1000, 9999)}!"),
    "fresh-spanish": ("la contraseña es {}", lambda d: f"Verano{d.randrange(1000, 9999)}!"),
    "fresh-french": ("Mot de passe : {}", lambda d: f"Soleil{d.randrange(1000, 9999)}!"),
    "fresh-sql": ("CREATE USER 'a'@'%' IDENTIFIED BY '{}';", of(WORD, 12)),
    "fresh-sql-role": ("ALTER ROLE app WITH PASSWORD '{}';", of(WORD, 12)),
    "fresh-powershell": ("ConvertTo-SecureString '{}' -AsPlainText -Force", of(WORD, 14)),
    "fresh-htpasswd": ("admin:{}", lambda d: f"$apr1${of(WORD, 8)(d)}${of(WORD, 22)(d)}"),
    "fresh-azure-storage": ("AccountName=x;AccountKey={};EndpointSuffix=core.windows.net", of(BASE64, 86)),
    "fresh-azure-sas": ("https://x.blob.core.windows.net/c?sv=2022&sp=r&sig={}", of(WORD, 42)),
    "fresh-telegram-url": (
        "https://api.telegram.org/bot{}/sendMessage",
        lambda d: f"{d.randrange(10**9, 10**10)}:AA{of(WEB, 33)(d)}",
    ),
    "fresh-wandb": ("wandb login {}", H40),
    "fresh-langsmith": ("LANGCHAIN_API_KEY={}", lambda d: f"lsv2_pt_{H32(d)}_{of(HEX, 10)(d)}"),
    "fresh-totp": ("otpauth://totp/A:b?secret={}&issuer=A", of(UPPER + "234567", 32)),
    "fresh-terraform": ('variable "db_password" {{\n  default = "{}"\n}}', K32),
    "fresh-flag": ("mycli login --token {} --quiet", K40),
    "fresh-form": ("grant_type=password&username=a&password={}", of(WORD, 12)),
    "fresh-xml": ("<password>{}</password>", of(WORD, 12)),
    "fresh-xml-add": ('<add key="ApiKey" value="{}" />', K32),
    "fresh-spring": ("spring.datasource.password={}", of(WORD, 12)),
}
"""Shapes that were written after the rules had been tuned on both halves: of 59 such texts they found .83 when first
asked, and all after they were mended.  Those that were missed are here, with some of the others."""


def labelled(per_shape: int = 3) -> list[Labelled]:
    """The whole set: `per_shape` texts of each shape."""
    rows = []
    for vendor, key in KEYS.items():
        for seed, around in zip(range(per_shape), AROUND_KEY, strict=False):
            secret = key(random.Random(f"{vendor} {seed}"))
            rows.append(Labelled(f"key-{vendor}", around.format(secret), secret))
    for shape, (around, draw) in (PLACED | FRESH).items():
        for seed in range(per_shape):
            secret = draw(random.Random(f"{shape} {seed}"))
            rows.append(Labelled(shape, around.format(secret), secret))
    return rows


def tuned(shape: str) -> bool:
    """True of the half of the shapes that the rules were tuned on."""
    return crc32(shape.encode()) % 2 == 0


def harmless(per_shape: int = 5) -> list[Labelled]:
    """Texts without a secret that look as if they had one; the shape's name, the text, and nothing."""
    rows = []
    for number, (text, draws) in enumerate(HARMLESS):
        count = per_shape if draws else 1
        for seed in range(count):
            draw = random.Random(f"{number} {seed}")
            rows.append(Labelled(text[:40], text.format(*(make(draw) for make in draws)), ""))
    return rows


def number(low: int, high: int) -> Draw:
    return lambda draw: str(draw.randrange(low, high))


def base64_of(count: int) -> Draw:
    return lambda draw: base64.b64encode(draw.randbytes(count)).decode()


HARMLESS: list[tuple[str, tuple[Draw, ...]]] = [
    ("trace_id: {}", (H32,)),
    ('{{"traceId": "{}", "spanId": "{}"}}', (H32, of(HEX, 16))),
    ("commit {}\nAuthor: Ann", (H40,)),
    ("fixed in {} and {}", (of(HEX, 7), of(HEX, 12))),
    ("request id {}", (some_uuid,)),
    ('{{"session_id": "{}"}}', (some_uuid,)),
    ('{{"id": "chatcmpl-{}"}}', (of(WORD, 29),)),
    ('{{"tool_call_id": "call_{}"}}', (of(WORD, 24),)),
    ('{{"id": "toolu_{}"}}', (of(WORD, 24),)),
    ('{{"id": "msg_{}"}}', (of(WORD, 24),)),
    ("run_{} of asst_{}", (of(WORD, 24), of(WORD, 24))),
    ("sha256:{}", (H64,)),
    ("sha256sum: {}  file.txt", (H64,)),
    ('"integrity": "sha512-{}"', (base64_of(64),)),
    ("md5 {}", (H32,)),
    ('etag: W/"{}"', (H32,)),
    ("data:image/png;base64,{}", (base64_of(300),)),
    ('{{"image": "{}"}}', (base64_of(240),)),
    ("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----", (base64_of(300),)),
    ("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----", (base64_of(300),)),
    ("ssh-ed25519 {} ann@host", (base64_of(51),)),
    ("order #{} was shipped", (number(10**7, 10**9),)),
    ("tracking number 1Z{}", (of(CAPITAL, 16),)),
    ("tracking: {}", (of(DIGITS, 22),)),
    ("price: ${}.99", (number(1, 900),)),
    ("Message-ID: <{}.JavaMail.evans@thyme>", (number(10**6, 10**8),)),
    ("IBAN DE{}", (of(DIGITS, 20),)),
    ("phone: +1 {} {}", (number(200, 999), number(1000000, 9999999))),
    ('{{"max_tokens": {}}}', (number(1, 9000),)),
    ('{{"usage": {{"prompt_tokens": {}, "completion_tokens": {}}}}}', (number(1, 9000), number(1, 900))),
    ("gen_ai.usage.input_tokens={}", (number(1, 100000),)),
    ("token: {}", (number(1, 9999),)),
    (
        '{{"token": "{}", "logprob": -0.1}}',
        (lambda d: d.choice([" hello", "ing", "Ġworld", "the", "understand"]),),
    ),
    ("token_count: {} tokens_per_second: {}", (number(1, 9999), number(1, 99))),
    ('{{"next_page_token": "{}"}}', (of(WEB, 40),)),
    ('{{"nextPageToken": "{}"}}', (of(WEB, 60),)),
    ('{{"continuation_token":"{}"}}', (base64_of(30),)),
    ('{{"cursor": "{}"}}', (base64_of(24),)),
    ("https://example.org/list?page_token={}", (of(WEB, 40),)),
    ("pad_token: <pad>, eos_token: </s>, bos_token: <s>", ()),
    ('{{"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}}', ()),
    ("stop_token=<|eot_id|>", ()),
    ("password_policy: at least {} characters", (number(8, 20),)),
    ('{{"password_policy": {{"min_length": {}}}}}', (number(8, 20),)),
    ('{{"password_field": "#login-{}"}}', (number(1, 99),)),
    ("password_reset_url=https://example.org/reset", ()),
    ("has_password: true", ()),
    ("password: null", ()),
    ('{{"password": ""}}', ()),
    ('{{"password": null, "secret": false}}', ()),
    ('{{"password": "********"}}', ()),
    ('{{"password": "<your password>"}}', ()),
    ('{{"password": {{"type": "string", "description": "The password of the user."}}}}', ()),
    ('{{"password": "string"}}', ()),
    ('"api_key": "YOUR_API_KEY"', ()),
    ("api_key = os.environ['OPENAI_API_KEY']", ()),
    ('api_key=os.getenv("OPENAI_API_KEY")', ()),
    ("const apiKey = process.env.API_KEY;", ()),
    ("password=${{DB_PASSWORD}}", ()),
    ("password: {{{{ vault_password }}}}", ()),
    ("password=$DB_PASSWORD", ()),
    ("--password <password>", ()),
    ("--api-key API_KEY", ()),
    ("def login(user: str, password: str) -> None:", ()),
    ("def login(user, password=None):", ()),
    ("login(user=user, password=password)", ()),
    ("self.password = password", ()),
    ("token = self.get_token()", ()),
    ("token = tokenizer.decode(ids)", ()),
    ("if token == 'the':", ()),
    ("for token in tokens: print(token)", ()),
    ("secret = request.form['secret']", ()),
    ("client_secret=settings.client_secret", ()),
    ("password = getpass.getpass()", ()),
    ("password VARCHAR(255) NOT NULL", ()),
    ("SELECT id, password FROM users WHERE id = {}", (number(1, 999),)),
    ("I forgot my password, can you help me?", ()),
    ("Your password is incorrect.", ()),
    ("The password is too short: use at least 8 characters.", ()),
    ("Password: required", ()),
    ("Password must be at least 12 characters long.", ()),
    ("Please reset your password to continue.", ()),
    ("password is expired; the token is invalid", ()),
    ("Error: invalid token: unexpected end of input", ()),
    ("SyntaxError: Unexpected token '<' at position {}", (number(1, 99),)),
    ("the secret is to keep stirring", ()),
    ("Secret: the sauce has no sugar", ()),
    ("secret_name: db-credentials", ()),
    ("secretName: app-tls", ()),
    ("secret_arn=arn:aws:secretsmanager:eu-west-1:{}:secret:db-x", (of(DIGITS, 12),)),
    ("key: value", ()),
    ('{{"key": "user_{}", "value": "{}"}}', (number(1, 999), number(1, 999))),
    ('{{"key": "gen_ai.request.model", "value": {{"stringValue": "gpt-4o-2024-08-06"}}}}', ()),
    ("primary_key: id, foreign_key: user_{}", (number(1, 99),)),
    ("primary_key={}", (some_uuid,)),
    ("cache_key: {}", (H32,)),
    ("CACHE_KEY={}", (H32,)),
    ("public_key: {}", (H64,)),
    ("PUBLIC_KEY={}", (H64,)),
    ("idempotency-key: {}", (some_uuid,)),
    ("partition_key=2026-01-{}", (number(10, 28),)),
    ("keyboard: us, monkey: business", ()),
    ("the key is under the mat", ()),
    ("https://example.org/?monkey=bananasarefruit&key=short", ()),
    ("https://example.org/search?q=password+reset&page={}", (number(1, 99),)),
    ("https://example.org/a/{}/b?utm_source=mail&ref={}", (of(HEX, 24), of(WORD, 8))),
    ("https://www.youtube.com/watch?v={}", (of(WEB, 11),)),
    ("https://docs.example.org/d/{}/edit", (of(WEB, 44),)),
    ("https://example.org:8080/a@b", ()),
    ("http://127.0.0.1:{}/v1/", (number(1024, 65535),)),
    ("git@github.com:ann/{}.git", (of(LOWER, 8),)),
    ("s3://bucket/{}/part-{}.parquet", (some_uuid, number(1, 999))),
    ("/usr/lib/python3.11/site-packages/x/{}.py", (of(LOWER, 8),)),
    ("C:\\Users\\ann\\AppData\\Local\\{}", (of(WORD, 8),)),
    ("PWD=/home/ann/projects/{}", (of(LOWER, 8),)),
    ("model=claude-3-5-sonnet-20241022", ()),
    ("model: gpt-4o-2024-08-06, temperature: 0.{}", (number(1, 9),)),
    ("version 1.{}.{}", (number(1, 99), number(1, 99))),
    ("2026-01-{}T10:00:00.{}Z", (number(10, 28), number(100, 999))),
    ("eyJ is how a JWT begins; sk- how a key does", ()),
    ("eyJ{}.{}", (of(WORD, 20), of(WORD, 6))),
    ("cursor eyJ{}", (of(WORD, 60),)),
    ("ask-me-anything-about-the-weather-in-paris", ()),
    ("task-force-of-three, risk-averse, desk-{}", (number(1, 99),)),
    ("the bearer of good tidings came to town", ()),
    ("basic training, BASIC programs and Basic understanding", ()),
    ("a basic understanding of authentication", ()),
    ("Authorization: required for this endpoint", ()),
    ("authorization: none", ()),
    ("The authorization: see section {}", (number(1, 99),)),
    ("cookie: chocolate chip", ()),
    ("Set cookie policy: strict", ()),
    ("cookies=true; the cookie banner", ()),
    ("auth: enabled", ()),
    ("pass: {} fail: {}", (number(1, 99), number(1, 99))),
    ("tests passed: {}, compass: north", (number(1, 99),)),
    ("boarding pass={}", (of(CAPITAL, 6),)),
    ("passenger_id: {}", (of(HEX, 12),)),
    ("reservation_id: {} user_id: mia_li_{}", (of(CAPITAL, 6), number(1000, 9999))),
    ("payment_method: credit_card_{}", (number(1000000, 9999999),)),
    ("product_id={} variant={}", (number(10**9, 10**10), number(10**9, 10**10))),
    ("SKU: {}-{}", (of(UPPER, 3), number(1000, 99999))),
    ("AKIAK is a village; ASIA is a continent", ()),
    ("hf_hub_download and hf_transfer", ()),
    ("npm_config_registry=https://registry.example.org", ()),
    ("xoxo, see you soon", ()),
    ("SG.com is a domain", ()),
    ("ghp is short for something", ()),
    ("glpat- is the prefix of GitLab's tokens", ()),
    ("re_compile_pattern re_search_2", ()),
    ("sk_learn_{} = 3", (number(1, 99),)),
    ("fc-list | fc-cache -fv", ()),
    ("API-{}", (number(100, 999),)),
    ("patent.{} filed", (number(1000, 9999),)),
    ("color: #{}", (of(HEX, 6),)),
    ("MAC {}", (lambda d: ":".join(of(HEX, 2)(d) for _ in range(6)),)),
    ("IPv6 2001:db8:{}::1", (of(HEX, 4),)),
    ("embedding: [{}, {}]", (lambda d: str(d.random()), lambda d: str(d.random()))),
    ("0x{} at address", (of(HEX, 12),)),
    ("<object at 0x{}>", (of(HEX, 12),)),
    ("tx hash 0x{}", (H64,)),
    ("Docker image app@sha256:{}", (H64,)),
    ("container {}", (of(HEX, 12),)),
    ("ISBN 978{}", (of(DIGITS, 10),)),
    ("lat=52.{} lon=13.{}", (number(1000, 9999), number(1000, 9999))),
    ("CSRF protection: enabled; csrf_token_name: csrftoken", ()),
    ("token_type: Bearer, expires_in: {}", (number(60, 9999),)),
    ('"token_endpoint": "https://auth.example.org/oauth/token"', ()),
    ("tokenizer: cl100k_base", ()),
    ("first_token_latency={}ms time_to_first_token: 0.{}", (number(1, 99), number(1, 99))),
    ("secrets: []", ()),
    ("credentials: include", ()),
    ("credentials: 'same-origin'", ()),
    ("Access-Control-Allow-Credentials: true", ()),
    ("Mr. Secretary: welcome", ()),
    ("secretary=Ann", ()),
    ("turnkey = solution, hockey: puck", ()),
    ("ssh_key_path: ~/.ssh/id_ed25519", ()),
    ("private_key_file=/etc/ssl/private/site.pem", ()),
    ("signing_key: ./keys/release.asc", ()),
    ("access_key_id_hint: first four letters", ()),
    ("jwt: library for tokens", ()),
    ("OTP: required", ()),
    ("otp.ticks: {}", (number(1, 9),)),
    ("pin: {}", (number(1, 40),)),
    ("recovery code: see the manual", ()),
    ("mnemonic: Every Good Boy Does Fine.", ()),
    ("['user', 'password', 'email', 'token']", ()),
    ('["password", "secret", "api_key"]', ()),
    ('{{"required": ["username", "password"]}}', ()),
    ("username/password login, or an API key", ()),
    ("Enter password: ", ()),
    ("password for ann: ", ()),
    ("(current) UNIX password: ", ()),
    ("Password:\n\nDear Ann, your order {} is ready.", (number(1000, 9999),)),
    ("How do I set password = something in nginx?", ()),
    ("tool: reset_password(user_id='{}')", (of(LOWER, 6),)),
    ("change_password, verify_token, list_secrets", ()),
    ("total=12;key=abc;sort=asc", ()),
    ("a=1&b=2&signature=none&sig=x", ()),
    ("{} {} {}", (of(LOWER, 5), of(LOWER, 7), of(LOWER, 4))),
    ("class TokenBucketRateLimiterConfigurationFactoryBean:", ()),
    ("apiKeyAuthenticationConverterFactoryProviderBean = null", ()),
    ("access_token_expiry={}", (number(100, 9999),)),
    ("Bearer token authentication is required", ()),
    ("Bearer authentication-scheme-not-supported", ()),
    ("user:{}@example.org is not a URL", (of(LOWER, 4),)),
    ("://:@", ()),
    ("pass: '{}' fail: '{}'", (number(1, 99), number(1, 99))),
    ("{{'pass': 'second half', 'yards': {}}}", (number(1, 99),)),
    ('variable "region" {{ default = "eu-west-{}" }}', (number(1, 9),)),
    ('variable "db_password" {{ type = string }}', ()),
    ("the user is identified by '{}'", (of(LOWER, 4),)),
    ("ConvertTo-SecureString $plain -AsPlainText", ()),
    ("wandb login: logged in as {}", (of(LOWER, 6),)),
    ("Das Passwort ist falsch, el token es corto, le mot de passe est obligatoire", ()),
    ("bot{}:AA battery", (number(10**8, 10**9),)),
    ("see RFC{} and CVE-2026-{}", (number(1000, 9999), number(1000, 99999))),
]
