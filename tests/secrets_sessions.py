# ruff: noqa: E501 - one shape a line
"""Secrets in what an agent reads, types and is told, and what stands there beside them.

Written before the rules were read and asked once, when they were done: docs/decisions/058 has the figure.  `§` is where
the value stands, which is drawn anew.
"""

from __future__ import annotations

import random

from secrets_corpus import (
    BASE64,
    CAPITAL,
    DIGITS,
    HEX,
    LOWER,
    SMALL,
    WEB,
    WORD,
    Draw,
    Labelled,
    join,
    jwt,
    of,
    some_uuid,
)
from secrets_settings import b64, escaped, one_line, pair


def invented(draw: random.Random) -> str:
    """A password that somebody made up."""
    left, right = draw.sample(
        ["Otter", "cobalt", "Fjord", "pepper", "Lantern", "mosaic", "Tundra", "sherpa"], 2
    )
    return draw.choice(
        [
            f"{left}{draw.randrange(10, 99)}{right}",
            f"{left}-{right}-{draw.randrange(100, 999)}",
            f"{left.lower()}{draw.choice('!$#%&')}{draw.randrange(1000, 9999)}",
            f"{left[0].upper()}{right.lower()}_{draw.randrange(1950, 2030)}!",
            of(WORD + "!#%*", 14)(draw),
        ]
    )


def letters(draw: random.Random) -> str:
    """A word that somebody took for a password."""
    return draw.choice(
        ["gooseberry", "tottenham", "mercedes", "snowflake", "dumbledore", "pineapple", "barcelona"]
    )


W16, W20, W24, W32, W36, W40, W48, W64 = (of(WORD, n) for n in (16, 20, 24, 32, 36, 40, 48, 64))
H32, H40, H64 = of(HEX, 32), of(HEX, 40), of(HEX, 64)
S16, S24, S32 = of(SMALL, 16), of(SMALL, 24), of(SMALL, 32)

SECRETS: list[tuple[str, Draw]] = [
    # What an agent types
    ("export ANTHROPIC_API_KEY=§ && claude -p hi", join("sk-ant-api03-", of(WEB, 90))),
    ("API_TOKEN='§' python sync.py --dry-run", W40),
    (
        'curl -sS -X POST https://api.example.com/login -d \'{"email":"ann@example.com","password":"§"}\'',
        invented,
    ),
    ("curl -d user=ann -d pass=§ https://forum.example.com/login", invented),
    ("curl --user 'svc:§' -T a.zip ftp://ftp.example.com/", invented),
    ("curl -H 'apikey: §' -H 'Content-Type: application/json' https://x.example.com/rest", W32),
    ("curl -b 'session=§' https://app.example.com/me", S32),
    ("http POST :8000/login username=ann password=§", invented),
    ("http GET example.com/me 'Authorization:Bearer §'", W40),
    ("xh -a ann:§ example.com/private", invented),
    ("ftp -u ftp://ann:§@ftp.example.com/up.zip up.zip", invented),
    ("lftp -u deploy,§ sftp://host", invented),
    ("expect -c 'spawn ssh a@b; expect password; send \"§\\r\"'", invented),
    ("PGPASSWORD=§ pg_restore -d shop dump.sql", invented),
    ("psql postgresql://shop:§@127.0.0.1/shop -c '\\dt'", invented),
    ("mysqladmin -u root password '§'", invented),
    ("mysqldump --user=root --password=§ --all-databases", invented),
    ("sqlcmd -S db -U sa -P § -Q 'select 1'", invented),
    ("mongo --username admin --password § --host db", invented),
    ("influx auth create --token § --org acme", b64(64)),
    ("clickhouse-client --user app --password § -q 'select 1'", invented),
    ("cqlsh -u cassandra -p § 10.0.0.4", invented),
    ("sudo sh -c 'echo admin:§ > /etc/htpasswd'", invented),
    ("echo § | docker login ghcr.io -u octo --password-stdin", W40),
    ("echo -n '§' | gcloud secrets create db-pass --data-file=-", invented),
    ("printf '%s' '§' > /run/secrets/db_password", invented),
    ('printf "§\\n§\\n" | passwd deploy', invented),
    ("kubectl create secret docker-registry r --docker-username=u --docker-password=§", W24),
    ("kubectl --token=§ get pods", jwt),
    ("kubectl config set-credentials ci --token=§", jwt),
    ("helm repo add acme https://charts.example.com --username ci --password §", W24),
    ("argocd login cd.example.com --username admin --password §", W16),
    ("terraform apply -var 'db_password=§'", invented),
    ('terraform init -backend-config="access_key=§"', b64(64)),
    ("pulumi config set --secret dbPassword §", invented),
    ("ansible all -m ping -e 'ansible_password=§'", invented),
    ("vault login §", join("hvs.", of(WORD, 24))),
    ("vault write auth/approle/login role_id=a secret_id=§", some_uuid),
    ("consul acl token read -token §", some_uuid),
    ("az login --service-principal -u app -p § --tenant t", join(of(WORD, 3), "8Q~", of(WEB, 34))),
    ("az storage blob list --account-name a --account-key §", b64(64)),
    ("az webapp config appsettings set -n a -g g --settings ApiKey=§", W32),
    ("aws configure set aws_secret_access_key §", of(BASE64, 40)),
    ("gcloud auth activate-refresh-token ann@example.com 1//§", of(WEB, 60)),
    ("firebase deploy --token '1//§'", of(WEB, 60)),
    ("vercel --token § --prod", W24),
    ("netlify deploy --auth § --prod", of(WEB, 43)),
    ("railway login --browserless; export RAILWAY_TOKEN=§", some_uuid),
    ('wrangler secret put API_KEY <<< "§"', W32),
    ("npm login --auth-type=legacy; npm set //r.example/:_authToken=§", W36),
    ("yarn config set npmAuthToken §", join("npm_", W36)),
    ("cargo login §", join("cio", W32)),
    ("gem push a.gem --key §; GEM_HOST_API_KEY=x", join("rubygems_", of(HEX, 48))),
    ("dotnet nuget push a.nupkg -k § -s https://api.nuget.org/v3/index.json", join("oy2", of(SMALL, 43))),
    ('dotnet user-secrets set "Stripe:Key" "§"', join("sk_live_", W24)),
    ("mvn deploy -Dgpg.passphrase=§", letters),
    ("java -Djavax.net.ssl.trustStorePassword=§ -jar a.jar", letters),
    ("gradle publish -PsigningPassword=§", invented),
    ("composer config http-basic.repo.example.com ann §", W24),
    ("bundle config gems.example.com ci:§", W24),
    ("sentry-cli --auth-token § releases list", H64),
    ("huggingface-cli login --token §", join("hf_", of(WORD, 34))),
    ("wandb login §", H40),
    ("ngrok config add-authtoken §", W48),
    ("tailscale up --authkey §", join("tskey-auth-", of(WORD, 12), "-", W32)),
    ("cloudflared tunnel run --token §", join("eyJ", of(WORD, 150))),
    ("nmcli dev wifi connect Attic password §", invented),
    ("wpa_passphrase Attic §", invented),
    ("cryptsetup open /dev/sdb1 data <<< '§'", invented),
    ("ssh-keygen -t ed25519 -N '§' -f key", invented),
    ("openssl pkcs12 -export -in c.pem -passout pass:§ -out c.p12", invented),
    ("gpg --pinentry-mode loopback --passphrase '§' -s a", invented),
    ("rar a -hp§ secret.rar docs/", invented),
    ("qpdf --password=§ --decrypt in.pdf out.pdf", invented),
    ("pdftotext -upw § in.pdf", invented),
    ("rsync --password-file=<(echo §) a rsync://u@h/m", invented),
    ("msfconsole -q -x 'set SMBPass §'", invented),
    (
        "Connect-AzAccount -Credential (New-Object PSCredential('u', (ConvertTo-SecureString '§' -AsPlainText -Force)))",
        invented,
    ),
    ('$secure = ConvertTo-SecureString "§" -AsPlainText -Force', invented),
    ("net user ann § /add", invented),
    ("cmdkey /add:nas /user:me /pass:§", invented),
    ("schtasks /create /tn a /tr b /ru ann /rp §", invented),
    ("reg add HKCU\\Software\\X /v Password /d § /f", invented),
    # What an agent reads
    ('{"tool": "http", "args": {"headers": {"X-Auth-Token": "§"}}}', W32),
    ('{"tool_input": "{\\"api_key\\": \\"§\\"}"}', W32),
    ('{"arguments": {"username": "ann", "password": "§"}}', invented),
    ('{"cmd": ["mysql", "-u", "root", "-p§"]}', invented),
    ('{"cmd": ["curl", "-H", "Authorization: Bearer §"]}', W40),
    ('["--token", "§"]', W40),
    ('args: ["--api-key=§", "--verbose"]', W32),
    ('"env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "§"}', join("github_pat_", of(WORD, 22), "_", of(WORD, 59))),
    ('{"mcpServers":{"x":{"env":{"BRAVE_API_KEY":"§"}}}}', join("BSA", of(WEB, 28))),
    ('{"key": "DB_PASSWORD", "value": "§", "type": "secret"}', invented),
    ('{"ParameterKey": "DbPassword", "ParameterValue": "§"}', invented),
    ('{"SecretString": "{\\"username\\":\\"app\\",\\"password\\":\\"§\\"}"}', invented),
    ('{"Credentials": {"AccessKeyId": "ASIAABCDEFGHIJKLMNOP", "SecretAccessKey": "§"}}', of(BASE64, 40)),
    ('{"SessionToken": "§"}', b64(240)),
    ('{"data": {"data": {"pw": "§"}, "metadata": {"version": 3}}}', invented),
    ('{"auth": {"client_token": "§", "accessor": "x"}}', join("hvs.", of(WEB, 90))),
    ('{"id_token": "§"}', jwt),
    ('{"refreshToken": "§", "expiresIn": 3600}', W64),
    ('{"webhook": {"url": "https://x.example", "secret": "§"}}', W24),
    ('{"smtp": {"host": "mail", "auth": {"user": "a", "pass": "§"}}}', invented),
    ('{"private_key_id": "a", "private_key": "§"}', one_line("PRIVATE KEY")),
    ('{"d": "§", "kty": "EC", "crv": "P-256"}', of(WEB, 43)),
    ('{"apiKey":"§","authDomain":"a.firebaseapp.com"}', join("AIza", of(WEB, 35))),
    ('{"otp": "§"}', of(DIGITS, 6)),
    ('{"pin": "§"}', of(DIGITS, 4)),
    ('{"cvv": "§", "exp": "12/29"}', of(DIGITS, 3)),
    ('{"answers": {"security_answer": "§"}}', letters),
    ("{u'password': u'§'}", invented),
    ("Namespace(host='db', user='app', password='§')", invented),
    ("Config(api_key='§', base_url=None)", W32),
    ("Settings(token=SecretStr('§'))", W40),
    ("User{name=ann, password=§, role=ADMIN}", invented),
    ('#<User id: 7, name: "ann", password: "§">', invented),
    ("&{Host:db User:app Password:§ Port:5432}", invented),
    ('struct Creds { user: "app", password: "§" }', invented),
    ("Array\n(\n    [user] => app\n    [password] => §\n)", invented),
    ('  ["password"]=>\n  string(12) "§"', invented),
    ('%{user: "app", password: "§"}', invented),
    ('{:user "app" :password "§"}', invented),
    (":password => '§'", invented),
    ("OrderedDict([('user', 'app'), ('password', '§')])", invented),
    ("('password', '§')", invented),
    ("password\t§", invented),
    ("Password ........ : §", invented),
    ("Username: ann\nPassword: §\n", invented),
    ("user: ann, pwd: §", invented),
    ("ID: ann PW: §", invented),
    ("login: ann\tpass: §", invented),
    ("Default login is admin / password is §", invented),
    ("Initial admin password: §", W20),
    ("*** Your new root password is § ***", invented),
    ("A temporary password is generated for root@localhost: §", invented),
    ("Please use the following password to proceed to installation:\n\n§\n", H32),
    ("http://127.0.0.1:8888/?token=§", of(HEX, 48)),
    ("http://localhost:8888/lab?token=§\n     or http://127.0.0.1:8888/lab", of(HEX, 48)),
    ("Grafana admin user: admin, password: §", W16),
    (
        "kubeadm join 10.0.0.1:6443 --token § --discovery-token-ca-cert-hash sha256:ab",
        join(of(SMALL, 6), ".", of(SMALL, 16)),
    ),
    ("docker swarm join --token § 10.0.0.1:2377", join("SWMTKN-1-", of(SMALL, 49), "-", of(SMALL, 25))),
    ("Unseal Key 1: §", b64(33)),
    ("Initial Root Token: §", join("hvs.", of(WORD, 24))),
    ("Two-factor backup code: §", join(of(DIGITS, 4), "-", of(DIGITS, 4))),
    ("Your one-time code is §", of(DIGITS, 6)),
    ("G-§ is your verification code.", of(DIGITS, 6)),
    ("Deine PIN lautet §", of(DIGITS, 4)),
    ("Ihr Passwort lautet: §", invented),
    ("Votre mot de passe est §", invented),
    ("Su contraseña es: §", invented),
    ("La tua password: §", invented),
    ("Din adgangskode: §", invented),
    ("Salasana: §", invented),
    ("Jelszó: §", invented),
    ("Κωδικός: §", invented),
    ("كلمة المرور: §", invented),
    ("סיסמה: §", invented),
    ("mật khẩu: §", invented),
    ("密碼:§", invented),
    ("parola=§", invented),
    ("Here is the key: §", W40),
    ("here's my openai key § thanks", join("sk-", W48)),
    ("the wifi password is §", invented),
    ("pw for the zip: §", invented),
    ("you can log in as root with §", invented),
    ("I set the password to §.", invented),
    ("The api token (§) goes in the header", W40),
    ("secret = §", W32),
    ("SECRET: §", W32),
    ("auth: §", pair("svc", W20)),
    ("key=§", W32),
    ("token §", W40),
    ("Authorization: §", W40),
    ('authorization: Digest username="a", response="§"', H32),
    ("Authorization: AWS4-HMAC-SHA256 Credential=A/b, SignedHeaders=host, Signature=§", H64),
    ('Authorization: Token token="§"', W32),
    ("Authorization: ApiKey §", b64(40)),
    ("Proxy-Authorization: Basic §", pair("proxy", invented)),
    ("X-Goog-Api-Key: §", join("AIza", of(WEB, 35))),
    ("Ocp-Apim-Subscription-Key: §", H32),
    ("X-Shopify-Access-Token: shpat_§", H32),
    ("X-Hub-Signature-256: sha256=§", H64),
    ("x-csrf-token: §", of(WEB, 43)),
    ("Set-Cookie: auth_token=§; Secure", jwt),
    ('document.cookie = "sid=§; path=/"', S32),
    ("localStorage.setItem('jwt', '§')", jwt),
    ("window.__TOKEN__ = '§'", W40),
    ('<meta name="csrf-token" content="§">', b64(64)),
    ("<key>APIKey</key>\n<string>§</string>", W32),
    ('<string name="maps_api_key">§</string>', join("AIza", of(WEB, 35))),
    ('<setting name="Password" serializeAs="String"><value>§</value></setting>', invented),
    ("<server><id>nexus</id><username>ci</username><password>§</password></server>", invented),
    ('<connectionStrings><add connectionString="Server=.;Uid=a;Password=§" /></connectionStrings>', invented),
    ("proxy: http://ann:§@proxy.example.com:3128", escaped(invented)),
    ("dsn: https://§@o1.ingest.sentry.io/2", H32),
    ("mongodb+srv://app:§@c0.example.mongodb.net/shop", invented),
    ("clickhouse://default:§@ch:9000/a", invented),
    ("smtps://ann%40example.com:§@smtp.example.com:465", invented),
    ("snowflake://etl:§@acme/db", invented),
    ("https://discord.com/api/webhooks/1078812345678901234/§", of(WEB, 68)),
    ("https://api.telegram.org/bot123456789:§/sendMessage", of(WEB, 35)),
    ("https://prod-12.westeurope.logic.azure.com/workflows/a/triggers/x?sp=%2F&sig=§", of(WEB, 43)),
    ("https://storage.googleapis.com/b/o?X-Goog-Signature=§", of(HEX, 256)),
    ("https://app.example.com/magic?login_token=§", W48),
    ("https://calendar.google.com/calendar/ical/a/private-§/basic.ics", H32),
    ("#access_token=§&token_type=bearer", W48),
    ("sops:\n  age:\n  - enc: x\ndb:\n  passphrase: §", letters),
    ("rabbitmq:\n  erlang_cookie: §", of(CAPITAL, 20)),
    ("admin:\n  initialPassword: §", invented),
    ("credentials:\n  - user: a\n    pass: §", invented),
    ("api_keys:\n  - §", W32),
    ('tokens: ["§"]', W40),
    ("secrets:\n  stripe: §", join("sk_live_", W24)),
    ("encryption:\n  keys:\n    - name: key1\n      secret: §", b64(32)),
    ("password_hash: §", join("$2b$12$", of(WORD + "./", 53))),
    ("root:$6$§:19000:0:99999:7:::", join(of(WORD, 8), "$", of(WORD + "./", 86))),
    ("admin:$apr1$§", join(of(WORD, 8), "$", of(WORD + "./", 22))),
    ("SCRAM-SHA-256$4096:§", join(b64(16), "$", b64(32), ":", b64(32))),
    ("ssh_host_key: |\n  -----BEGIN EC PRIVATE KEY-----\n  §", of(BASE64, 64)),
    ("hex key: §", H64),
    ("signing secret `§`", H32),
    ("`API_KEY=§`", W32),
    ("> password: §", invented),
    ("- **Password:** §", invented),
    ("| API key | `§` |", W32),
    ("+  password: §\n-  password: old", invented),
    ("+DB_PASSWORD=§", invented),
    ('@@ -1 +1 @@\n-token = "§"', W40),
    ("12:  api_secret: '§',", W32),
    ("config/app.yml:14:  password: §", invented),
    (".env:3:STRIPE_KEY=§", join("rk_live_", W24)),
    ("diff --git a/.env b/.env\n+JWT_SECRET=§", W48),
    ('\\"password\\": \\"§\\"', invented),
    ("password%3D§%26user%3Dann", S16),
    ("%22token%22%3A%22§%22", W40),
    ("YAML: { secret: '§' }", S24),
    ("LOWER_PASS=§", of(LOWER, 18)),
]
"""What must go."""

PLAIN_HARMLESS = r"""
export EDITOR=vim
export HISTCONTROL=ignorespace
export KEY_DIR=/etc/keys
export TOKENS_PER_MINUTE=90000
export SECRET_PATH=secret/data/shop
export PASSWORD_STORE_DIR=~/.password-store
unset ANTHROPIC_API_KEY
env | grep -i key
printenv API_TOKEN
echo ${API_TOKEN:0:4}
echo "token is set: ${API_TOKEN:+yes}"
test -n "$API_TOKEN" || exit 1
if [ -z "$PASSWORD" ]; then
: "${PASSWORD:?Password is required}"
PASSWORD=$(openssl rand -base64 24)
PASSWORD=`pwgen 20 1`
read -r TOKEN < /run/token
source .env
cat .env.example
cp .env.example .env
chmod 600 ~/.ssh/id_rsa
ls -la ~/.aws/credentials
-rw------- 1 ann ann 411 Mar 3 10:00 id_ed25519
-rw-r--r-- 1 root root 1704 Mar 3 10:00 tls.key
drwxr-xr-x 2 ann ann 4096 Mar 3 10:00 secrets
src/auth/password.py
src/tokens/__init__.py
tests/test_password_reset.py
app/models/api_key.rb
docs/secrets.md
migrations/0007_add_token.py
Modified: config/credentials.yml.enc
password.py:14: error: Incompatible return value type
auth.ts(12,5): error TS2322: Type 'string' is not assignable
test_login_wrong_password PASSED
test_token_expired FAILED
collected 3 items / 2 deselected by -k password
E       assert 'token' in {}
FAILED tests/test_auth.py::test_password - AssertionError
2 passed, 1 failed in token_test.go
ok   example.com/shop/token 0.012s
--- FAIL: TestPasswordHash (0.00s)
WARN deprecated: use --password-stdin instead
warning: password is unused
note: token `;` was expected here
error[E0425]: cannot find value `secret` in this scope
undefined: apiKey
ReferenceError: token is not defined
NameError: name 'password' is not defined
Uncaught TypeError: Cannot read properties of null (reading 'token')
ValueError: API key must be set
openai.AuthenticationError: Error code: 401
401 Unauthorized: missing bearer token
403 Forbidden: token lacks scope repo
HTTP/1.1 401 Unauthorized
HTTP 429: token quota exceeded
fatal: could not read Password for 'https://git.example.com': terminal prompts disabled
remote: Invalid username or password.
ERROR 1045 (28000): Access denied for user 'app'@'10.0.0.3' (using password: YES)
psql: error: fe_sendauth: no password supplied
NOAUTH Authentication required.
WRONGPASS invalid username-password pair or user is disabled.
MongoServerError: Authentication failed.
ORA-01017: invalid username/password; logon denied
Login failed for user 'sa'. Reason: Password did not match.
kex_exchange_identification: Connection closed
Host key verification failed.
no matching host key type found. Their offer: ssh-rsa
Accepted publickey for ann from 10.0.0.3 port 51122 ssh2
Failed password for invalid user admin from 10.0.0.9 port 22 ssh2
pam_unix(sshd:auth): authentication failure; user=root
sudo: 3 incorrect password attempts
session opened for user root by ann(uid=1000)
gpg: decryption failed: No secret key
gpg: using RSA key 3AA5C34371567BD2
key "ann@example.com" not found
INFO token bucket refilled: 100
INFO rotated 3 keys, 0 failed
INFO password policy loaded: min=12 upper=1 digit=1
INFO secret shop/db synced
DEBUG cache miss key=user:7:cart
DEBUG key=cart ttl=60
DEBUG token_count=812 model=gpt-4o
DEBUG auth=ok user=7
DEBUG session started for ann
DEBUG cookie theme accepted
level=info msg="token valid" user=7
level=warn msg="password too short" min=12
time=10ms tokens=812 cost=0.004
user=ann action=password_change result=ok
event=login.success method=password
status=token_revoked
reason=invalid_api_key
code=AUTH_REQUIRED
type=api_key
kind=Secret
kind: Secret
kind: ServiceAccount
type: Opaque
type: kubernetes.io/tls
data keys: username, password
name: DB_PASSWORD
- name: API_KEY
valueFrom:\n  secretKeyRef:\n    name: api\n    key: token
envFrom:\n- secretRef:\n    name: app-env
volumes:\n- name: creds\n  secret:\n    secretName: gcp
mountPath: /etc/secrets
readOnly: true
subPath: tls.key
vault.hashicorp.com/role: shop
external-secrets.io/v1beta1
remoteRef:\n  key: shop/db\n  property: password
secretStoreRef:\n  name: vault
rotationPolicy: Always
privateKey:\n  algorithm: ECDSA\n  size: 256
commonName: shop.example.com
password_attribute: userPassword
user_password_reset_url: /reset
session_key_prefix: "shop:"
session_timeout: 30m
cookie_name: sid
cookie_domain: .example.com
csrf_cookie_name: csrftoken
token_lookup: header:Authorization
token_header: X-Auth-Token
token_param: access_token
token_expiry: 1h
token_rotation: enabled
token_store: redis
access_token_lifetime: 5 minutes
refresh_token_enabled: yes
id_token_signed_response_alg: RS256
secret_engine: kv-v2
secret_scanning: enabled
secrets_provider: awskms
encryption_key_source: kms
encrypted: true
key_rotation_days: 90
key_algorithm: RSA_4096
key_pair: deploy
keypair_name: bastion
host_key_checking: False
private_key_file = ~/.ssh/deploy
ansible_ssh_private_key_file=~/.ssh/id_rsa
ansible_password="{{ lookup('env', 'PASS') }}"
ansible_become_password: "{{ vault_become }}"
password: "{{ lookup('password', '/tmp/pw length=20') }}"
password_hash('sha512')
no_log: true
vars_prompt:\n- name: password\n  prompt: Password?
update_password: on_create
db_password = data.aws_ssm_parameter.db.value
password = module.db.password
password = each.value.password
password = sensitive(var.password)
password = local.secrets["db"]
token = module.eks.token
token = data.google_client_config.default.access_token
output "password" { value = random_password.db.result sensitive = true }
resource "random_password" "db" { length = 24 }
resource "aws_secretsmanager_secret" "db" { name = "shop/db" }
resource "tls_private_key" "k" { algorithm = "ED25519" }
key = "shop/terraform.tfstate"
key   = "env/prod/terraform.tfstate"
key = "Name"
tags = { Key = "Owner", Value = "platform" }
hash_key = "pk"
range_key = "sk"
ssh_keys = [var.ssh_key_id]
{"tool": "vault_read", "args": {"path": "secret/data/shop"}}
{"name": "reset_password", "arguments": {"user_id": 7}}
{"name": "get_api_key", "description": "Return the id of a key"}
{"role": "user", "content": "How do I reset my password?"}
{"role": "assistant", "content": "Click on Forgot password."}
{"finish_reason": "stop", "usage": {"total_tokens": 55}}
{"input_tokens": 2095, "output_tokens": 503}
{"cache_creation_input_tokens": 0, "cache_read_input_tokens": 1024}
{"top_logprobs": [{"token": " password", "logprob": -2.1}]}
{"tokens": ["my", "pass", "##word"]}
{"token_ids": [101, 2026, 20786, 102]}
{"max_tokens": 1024, "stop": ["\n"]}
{"level": "error", "message": "bad password"}
{"field": "password", "message": "is too short"}
{"errors": {"password": ["can't be blank"]}}
{"password": "must contain a digit"}
{"password": ["This field is required."]}
{"detail": "Could not validate credentials"}
{"message": "Bad credentials", "documentation_url": "https://docs.github.com/rest"}
{"has_password": true, "mfa": false}
{"password_set": false}
{"requires_auth": true}
{"secret_type": "password", "validity": "active"}
{"public_key_url": "/keys/1"}
{"key_prefix": "sk-ab"}
{"api_key_last4": "x7f2"}
{"apiKey": "process.env.API_KEY"}
{"apiKey": "${input:api_key}"}
{"env": {"API_KEY": "${API_KEY}"}}
{"headers": {"Authorization": "Bearer ${env:TOKEN}"}}
{"Authorization": "<redacted>"}
{"authorization": "***"}
{"token": "[REDACTED]"}
{"token": "<TOKEN>"}
{"token": ""}
{"token": null}
{"secret": {"$ref": "#/components/schemas/Secret"}}
{"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}}
{"in": "header", "name": "X-API-Key", "type": "apiKey"}
{"format": "password", "writeOnly": true}
{"example": "string", "title": "Password"}
{"keys": {"p256dh": "", "auth": ""}}
{"code": "42P01", "key": null}
{"kind": "token", "text": "return"}
{"session": {"duration": 1800}}
{"auth": {"strategy": "local"}}
{"pass": true, "score": 0.9}
{"pass": 12, "fail": 3}
pass: 12 fail: 3
PASS: test_login
passed: true
Pass rate: 92 %
pass@1 = 0.61
pass_rate=0.61
pass-through: enabled
passive_mode: on
Passau: 53.000 Einwohner
a pass through the Alps
pass the salt, please
Pass: the mountain road is open
first pass: tokenise
second pass: resolve names
The first pass is read-only.
token 17: "password"
token budget: 4000
Token usage: 512 / 4096
Tokens: 1,532 in, 402 out
The token costs $3 per million.
tokens per second: 81.4
Token efficiency improved by 12 %
Please paste your API key below.
Where do I find my API key?
You can create an API key in the console.
Do not commit your API keys.
I can't share passwords.
I don't know the password.
Use a password manager.
The password was wrong, so I tried again.
The secret was rotated by the operator.
The keys are kept in the vault.
The key is missing from the response.
The session token is stored in a cookie.
The code is in src/main.py.
The code is below.
code: 200
code: OK
Code review: approved
exit code: 1
source code: available
zip code: 94107
promo code: SUMMER
country code: +49
The PIN is on the card.
pin: 13
GPIO pin: 4
pinned: true
pin_memory=True
opinion: divided
otp: erlang 26
OTP 27 released
authored by Bob
authenticity: high
Author: Bob Ray <bob@example.com>
Co-authored-by: Ann Lee <ann@example.com>
Signed-off-by: Ann Lee <ann@example.com>
Reviewed-by: Ann
Key takeaways: three
Key: blue = water, green = parks
Key metrics: latency, cost
key concept: recursion
The key points are these: cost, speed.
Legend / key: dashed line
A minor key: sad
in the key of D
skeleton key: brass
low-key: yes
Turkey: Ankara
secret: false
secret santa: Friday
top secret: the recipe
Secret Garden: a novel
Victoria's Secret
the secret lies in the dough
credential helper: osxkeychain
credentials: include
credentials: 'same-origin'
credentials=True
withCredentials: true
fetch(url, { credentials: 'omit' })
cors(credentials=true)
private: true
private repo: yes
private_network: true
signature: def f(x: int) -> int
signature mismatch
function signature: (a, b)
"signatures": []
cookie: chocolate chip
Cookies: accept all
cookies: { secure: true }
cookieName: 'sid'
const cookie = req.cookies.sid
session: open
session.get("user")
session = Session()
sessions: 14
SessionLocal = sessionmaker(bind=engine)
auth = HTTPBasicAuth(user, password)
auth = (user, os.environ["PASS"])
auth=None
auth_token = get_auth_token(request)
auth_token = resp.cookies["auth"]
access_token = await self.fetch_access_token(code)
access_token = data["access_token"]
access_token=self.token
refresh_token = body.get("refresh_token")
client = OpenAI(api_key=os.environ["OPENAI_API_KEY"])
client = OpenAI(api_key="EMPTY")
client = OpenAI(api_key="not-needed")
client = Client(token=args.token)
client = boto3.client("secretsmanager")
secret = get_secret("shop/db")
secret = json.loads(resp["SecretString"])
secret = fixture.secret
secret_key = Fernet.generate_key()
secret_key = settings.secret_key.get_secret_value()
SECRET_KEY = os.environ["SECRET_KEY"]
SECRET_KEY = config("SECRET_KEY")
SECRET_KEY = env.str("SECRET_KEY")
API_KEY = Variable.get("api_key")
API_KEY: str = Field(..., env="API_KEY")
PASSWORD: Final = "password"
PASSWORD_FIELD = "password"
TOKEN_KEY = "access_token"
KEY = "name"
KEY_UP = 38
TOKEN_RE = re.compile(r"\w+")
TOKEN_REGEX = /[a-z]+/g
PASSWORD_REGEX = r"^(?=.*\d).{8,}$"
password = "".join(random.choices(ALPHABET, k=16))
password = hashlib.pbkdf2_hmac("sha256", plain, salt, 600000)
password = cli.prompt("Password", hide_input=True)
password = typer.Option(..., prompt=True)
password = kwargs.pop("password", None)
password = str(uuid.uuid4())
password = password or getpass()
password=password,
password: SecretStr
password: Annotated[str, Form()]
password: str = ""
password: bytes
password: Option<&str>
password: &str
password: CharSequence
password: char[]
password: NSString
password: Buffer
password: undefined
password: state.password,
password: this.form.password
password: faker.internet.password()
password: hash,
password: ctx.request.body.password
password: await bcrypt.hash(password, 10)
password: process.env.DB_PASS
password: Env.get('DB_PASSWORD')
password: config.get('db.password')
password: System.fetch_env!("DB_PASSWORD")
password: env!("DB_PASSWORD")
password: Deno.env.get("PW")
token: context.token
token: action.payload
token: user?.token ?? null
token: core.getInput('token')
token: req.query.token
token: crypto.randomUUID()
token: Token::Ident
token: lexer.Token
Token::Number(n) => n
Token(type='NAME', value='x')
Token(TokenType.IDENT, "password")
TokenKind.Secret
case Token.STRING:
enum Token { If, Else }
struct Token { kind: Kind }
interface Token { id: number }
type Password = string
type ApiKey = { id: string; name: string }
@Password() password: string
@IsNotEmpty() password: string;
@api_key_required
@require_token
#[arg(long, env = "API_KEY")]
@click.password_option()
parser.add_argument("--password", help="the password")
parser.add_argument("--token", default=None)
parser.add_argument("--api-key", default=os.environ.get("API_KEY"))
flag.String("token", "", "the token to use")
program.option('-p, --password <password>', 'the password')
.option("--token <token>")
Usage: tool [--user USER] [--password PASSWORD]
usage: login [-h] [-u USER] [-p PASS]
-p, --password string   Password
-k, --key-file FILE     the file of the key
--token TOKEN   the token (env: TOKEN)
  -P PORT       port to use
  -p, --port=8080
ssh -p 22022 ann@host
docker run -p 5432:5432 postgres:16
docker compose -p shop up -d
mkdir -p /var/secrets
nc -l -p 9000
cp -p a b
tar -xpf a.tar
unzip -p a.zip b.txt
nmap -p 22,80 10.0.0.0/24
uvicorn app:app -p 8000
pytest -p no:cacheprovider
git add -p src/token.py
git stash push -p
patch -p1 < a.diff
curl -u ann https://api.example.com
curl -k https://self.example.com
curl -H "X-API-Key: ${KEY}" https://api.example.com
curl -H "X-API-Key: YOUR_KEY" https://api.example.com
curl -H @headers.txt https://api.example.com
curl --netrc-file ~/.netrc https://api.example.com
wget --user=ann --ask-password https://files.example.com
http GET example.com Authorization:"Bearer $TOKEN"
kubectl get secret -n shop
kubectl logs deploy/token-service
kubectl delete secret regcred
kubectl create secret tls shop --cert=c.pem --key=k.pem
kubectl rollout restart deploy/keycloak
aws iam create-access-key --user-name ci
aws iam list-access-keys
aws ssm get-parameter --name /shop/db --with-decryption
gcloud secrets versions access latest --secret=db
op read op://shop/db/password
bw get password shop
sops -d secrets.enc.yaml
age-keygen -o key.txt
age -r $PUBLIC -o a.age a
ansible-vault encrypt vars.yml
ansible-playbook site.yml --ask-vault-pass
ansible-playbook site.yml --vault-password-file ~/.vault
terraform plan -var-file=secrets.tfvars
pulumi config get dbPassword
npm token list
npm login
yarn npm login
pip config list
poetry config --list
cargo login
gem signin
twine check dist/*
docker login
docker logout ghcr.io
gh auth status
gh auth token
gh api /user/keys
glab auth login
heroku auth:token
heroku config:get SECRET_TOKEN
fly auth token
vercel env pull
wrangler secret list
firebase login:ci
huggingface-cli whoami
tailscale status
wg genkey | tee privatekey | wg pubkey > publickey
ssh-keyscan github.com >> ~/.ssh/known_hosts
ssh-keygen -lf key.pub
ssh-keygen -y -f ~/.ssh/id_rsa
openssl dgst -sha256 a
openssl s_client -connect a:443
security find-generic-password -s shop
secret-tool lookup service shop
keyring get shop ann
Get-Credential
Get-AzKeyVaultSecret -VaultName kv -Name db
Read-Host "Password" -AsSecureString
$cred.GetNetworkCredential().Password
ConvertTo-SecureString $env:PASS -AsPlainText -Force
net user ann
net user ann * /add
SHOW CREATE USER app;
SET PASSWORD TO DEFAULT;
\password app
SELECT current_setting('password_encryption');
SELECT token FROM sessions LIMIT 1
SELECT count(*) FROM api_keys
DELETE FROM tokens WHERE expires < now()
DROP TABLE password_resets;
ALTER TABLE api_keys ADD COLUMN last_used timestamptz;
REVOKE ALL ON secrets FROM app;
CREATE ROLE app LOGIN;
GRANT app TO ann;
password TEXT,
password_digest VARCHAR(255) NOT NULL,
token CHAR(64) UNIQUE
secret BYTEA
key VARCHAR(32) PRIMARY KEY
<password/>
<password></password>
<password>${env.PASS}</password>
<password>{COQLCE6DU6GtcS5P=}</password>
<property name="password" ref="dbPassword"/>
<property name="keyStore" value="app.jks"/>
<xs:element name="password" type="xs:string"/>
<token>END</token>
<key>CFBundleIdentifier</key>
<key>UIRequiresFullScreen</key><true/>
<string name="password_hint">Password</string>
<string name="error_password">Wrong password</string>
<add key="Environment" value="Production"/>
<meta name="author" content="Ann">
<meta name="keywords" content="shop, cart">
<a href="/password/reset">Forgot password?</a>
<form action="/login" method="post">
<button>Show password</button>
<th>Token</th>
| Secret | Rotated |
| `password` | yes | the password |
| Key | Value |\n|---|---|\n| colour | blue |
| tokens | cost |\n|---|---|\n| 1532 | 0.004 |
name,password_set\nann,yes
- [ ] rotate the API key
- [x] password reset works
* token: opaque string
1. Get an API key.
2. Enter the password.
### Password rules
**Password**: at least 12 characters
**Note:** tokens expire.
> Your password is safe.
TODO: hash the password
FIXME: token leaks into logs
# the password is read from the environment
// token of the current user
/* secret: see vault */
-- password: hashed with argon2
; password = see vault
""".strip("\n").split("\n")

DRAWN_HARMLESS: list[tuple[str, Draw]] = [
    ("HEAD is now at § Fix the token", of(HEX, 7)),
    ("* § (HEAD -> main) Rotate keys", of(HEX, 8)),
    ("Author: Ann\nCommit: §", H40),
    ("parent §", H40),
    ("tree §", H40),
    ("pack-§.pack", H40),
    ("Digest: sha256:§", H64),
    ("image: shop@sha256:§", H64),
    ("layer sha256:§ already exists", H64),
    ("docker.io/library/redis:§", of(HEX, 12)),
    ("Successfully built §", of(HEX, 12)),
    ("aws:requestId: §", some_uuid),
    ("x-amzn-requestid: §", some_uuid),
    ("x-amz-id-2: §", b64(57)),
    ("cf-ray: §-FRA", of(HEX, 16)),
    ("X-Trace: §", H32),
    ('"request-id": "req_§"', W24),
    ('"x-request-id": "§"', H32),
    ('"trace": "§"', H32),
    ("session_id: §", some_uuid),
    ("conversation_id: §", some_uuid),
    ("message_id=§", some_uuid),
    ("response_id: resp_§", of(HEX, 48)),
    ('"call_id": "call_§"', of(WORD, 24)),
    ('"encrypted_id": 7, "uuid": "§"', some_uuid),
    ('"sub": "§"', of(DIGITS, 21)),
    ('"kid": "§"', H40),
    ('"x5t": "§"', of(WEB, 27)),
    ('"n": "§", "e": "AQAB"', of(WEB, 342)),
    ("project_id: §", of(SMALL, 12)),
    ("app_id: §", of(DIGITS, 6)),
    ("measurement_id: G-§", of(CAPITAL, 10)),
    ("GTM-§", of(CAPITAL, 7)),
    ("UA-§-1", of(DIGITS, 8)),
    ("AccessKeyId: AKIA§", of(CAPITAL, 16)),
    ('database_id = "§"', some_uuid),
    ('zone_id = "§"', H32),
    ('account_id = "§"', H32),
    ("hosted zone: Z§", of(CAPITAL, 13)),
    ("arn:aws:acm:eu-west-1:123456789012:certificate/§", some_uuid),
    ("sg-§", of(HEX, 17)),
    ("snap-§", of(HEX, 17)),
    ("cache-key: node-modules-§", H64),
    ("restore-keys: §", of(HEX, 12)),
    ("hashFiles -> §", H64),
    ("cid: bafy§", of(SMALL, 55)),
    ("Qm§", of(WORD, 44)),
    ("address 0x§", of(HEX, 40)),
    ("bc1q§", of("023456789acdefghjklmnpqrstuvwxyz", 38)),
    ("merkle root: §", H64),
    ("fingerprint: §", H40),
    ("thumbprint: §", of("0123456789ABCDEF", 40)),
    ("SHA1 Fingerprint=§", lambda d: ":".join(of("0123456789ABCDEF", 2)(d) for _ in range(20))),
    ("ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB§ ann@host", of(BASE64, 340)),
    ("|1§= ecdsa-sha2-nistp256 AAAAE2Vj", of(BASE64, 27)),
    ("public key: §", b64(32)),
    ('verify_key = "§"', H64),
    ("minisign: RW§", of(BASE64, 54)),
    ("sha1-§=", of(BASE64, 27)),
    ("resolution: {integrity: sha512-§==}", of(BASE64, 86)),
    ("specifier: ^1.0.0 § locked", of(HEX, 12)),
    ("cargo checksum §", H64),
    ('"content-hash": "§"', H64),
    ('url = "https://files.pythonhosted.org/packages/ab/cd/§/a.whl"', H64),
    ("https://cdn.example.com/a.js?v=§", of(HEX, 10)),
    ("https://app.example.com/orders/§", some_uuid),
    ("https://example.sharepoint.com/:w:/s/a/§", of(WEB, 40)),
    ("https://drive.google.com/file/d/§/view", of(WEB, 33)),
    ("https://meet.google.com/§", lambda d: "-".join(of(LOWER, n)(d) for n in (3, 4, 3))),
    ("https://www.notion.so/Page-§", H32),
    ("figma.com/file/§/Name", of(WORD, 22)),
    ("spotify:track:§", of(WORD, 22)),
    ("utm_id=§", of(SMALL, 8)),
    ("gclid=§", of(WEB, 60)),
    ("In-Reply-To: <§@example.com>", W24),
    ('boundary="----=_Part_§"', of(DIGITS, 18)),
    ("----WebKitFormBoundary§", W16),
    ("ARC-Seal: i=1; b=§", of(BASE64, 80)),
    ("X-Google-DKIM-Signature: b=§", of(BASE64, 80)),
    ("Sec-WebSocket-Accept: §", b64(20)),
    ("embedding: §", lambda d: ", ".join(f"{d.uniform(-1, 1):.6f}" for _ in range(8))),
    ('img src="data:image/jpeg;base64,/9j/§"', of(BASE64, 100)),
    ("url(data:font/woff2;base64,d09GMg§)", of(BASE64, 100)),
    ("//# sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjoz§", of(BASE64, 80)),
    ("FLAG §", of(DIGITS, 6)),
    ("ticket: SHOP-§", of(DIGITS, 5)),
    ("order §", join(of(DIGITS, 3), "-", of(DIGITS, 7))),
    ("tracking: 1Z§", of(CAPITAL, 16)),
    ("serial number: §", of(CAPITAL, 12)),
    ("IMEI: §", of(DIGITS, 15)),
    ("VIN: §", of("ABCDEFGHJKLMNPRSTUVWXYZ0123456789", 17)),
    ("license plate: B-§", of(CAPITAL, 5)),
    ("version: 1.2.§", of(DIGITS, 3)),
    ("build: §", of(DIGITS, 10)),
    ("key=user:§", of(DIGITS, 5)),
    ("token_hash: sha256:§", H64),
    ("next_page_token: §", of(DIGITS, 3)),
    ("cursor: §", b64(18)),
    ("pageToken=§", of(DIGITS, 4)),
    ("etcd key /registry/pods/shop/web-§", of(SMALL, 10)),
]


def _rows(lines: list[tuple[str, Draw]], secret: bool) -> list[Labelled]:
    rows = []
    for place, (text, make) in enumerate(lines):
        value = make(random.Random(f"sessions {place}"))
        rows.append(Labelled(text[:40], text.replace("§", value), value if secret else ""))
    return rows


SESSION_SETS: dict[str, tuple[list[Labelled], list[Labelled]]] = {
    "sessions": (
        _rows(SECRETS, True),
        _rows(DRAWN_HARMLESS, False)
        + [Labelled(line[:40], line.replace("\\n", "\n"), "") for line in PLAIN_HARMLESS],
    )
}
"""Name → texts with secrets, and harmless ones."""
