# ruff: noqa: E501 - one shape a line
"""Secrets as they stand in settings, logs, shells and programs, and what stands in the same places and is none.

Written from what the documentation of frameworks, servers and command lines shows, before the rules were read, and
asked once before they were mended; docs/decisions/058 has the figures of the first time.  `§` is where the value
stands, which is drawn anew.
"""

from __future__ import annotations

import base64
import json
import random
from urllib.parse import quote

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
    pem,
    some_uuid,
)


def chosen(draw: random.Random) -> str:
    """As people choose a password."""
    word = draw.choice(
        [
            "falcon",
            "Autumn",
            "Chelsea",
            "blueberry",
            "Pa55word",
            "marathon",
            "Kestrel",
            "gr33nTea",
            "Nov3mber",
        ]
    )
    return (
        word
        + draw.choice(["", "-", "_", "."])
        + str(draw.randrange(100, 9999))
        + draw.choice(["!", "", "%", "", "+", ""])
    )


def plain(draw: random.Random) -> str:
    """Letters alone."""
    return draw.choice(
        ["ladybird", "pumpernickel", "manchester", "ferrari", "butterscotch", "wolverine", "stargazer"]
    )


def b64(length: int) -> Draw:
    """So many random bytes in base64."""
    return lambda draw: base64.b64encode(draw.randbytes(length)).decode()


def pair(user: str, make: Draw) -> Draw:
    """`user:password` in base64."""
    return lambda draw: base64.b64encode(f"{user}:{make(draw)}".encode()).decode()


def escaped(make: Draw) -> Draw:
    """Percent-encoded."""
    return lambda draw: quote(make(draw) + "#@", safe="")


def one_line(kind: str) -> Draw:
    """A key in PEM with `\\n` for its lines, as JSON has it."""
    return lambda draw: json.dumps(pem(kind)(draw))[1:-1]


H16, H24, H32, H40, H48, H64, H128 = (of(HEX, n) for n in (16, 24, 32, 40, 48, 64, 128))
W16, W20, W24, W32, W40, W48, W64 = (of(WORD, n) for n in (16, 20, 24, 32, 40, 48, 64))
S20, S32, S40 = of(SMALL, 20), of(SMALL, 32), of(SMALL, 40)

SECRETS: list[tuple[str, Draw]] = [
    # dotenv and exports
    ("NODE_ENV=production\nSESSION_SECRET=§\nPORT=3000", W32),
    ("SECRET_KEY_BASE=§\nRAILS_LOG_TO_STDOUT=1", H128),
    ("APP_NAME=Shop\nAPP_KEY=base64:§\nAPP_DEBUG=false", b64(32)),
    ("MAIL_USERNAME=shop@example.com\nMAIL_PASSWORD=§\nMAIL_ENCRYPTION=tls", chosen),
    ("export PGPASSWORD='§'; psql -h db -U app -c 'select 1'", chosen),
    ('NEXTAUTH_URL=https://shop.example\nNEXTAUTH_SECRET="§"', b64(32)),
    ("RAILS_MASTER_KEY=§ bin/rails credentials:show", H32),
    ("MINIO_ROOT_USER=minio\nMINIO_ROOT_PASSWORD=§", chosen),
    ("REDIS_URL=rediss://:§@cache.internal:6380/0", W24),
    ("CELERY_BROKER_URL=amqp://worker:§@rabbit:5672/jobs", chosen),
    ("MONGO_INITDB_ROOT_PASSWORD: §", plain),
    ("ELASTIC_PASSWORD=§\nKIBANA_PORT=5601", W20),
    ("# billing\nSTRIPE_WEBHOOK_SECRET=whsec_§", W32),
    ("GF_SECURITY_ADMIN_PASSWORD=§", chosen),
    ("ANSIBLE_VAULT_PASSWORD=§ ansible-playbook site.yml", chosen),
    ("export TF_VAR_db_password=§", chosen),
    ("set OPENWEATHER_APPID=§", H32),
    ('$env:AZURE_CLIENT_SECRET = "§"', join(of(WORD, 3), "8Q~", of(WEB, 34))),
    ("setx GITHUB_PAT §", join("ghp_", of(WORD, 36))),
    ("MYSQL_PWD=§ mysqldump -u root shop > dump.sql", chosen),
    ("RESTIC_PASSWORD=§ restic snapshots", plain),
    ("SENTRY_AUTH_TOKEN=sntrys_§", join("eyJ", of(WEB, 80), "_", of(WEB, 43))),
    ("DD_API_KEY=§ DD_SITE=datadoghq.eu bash -c install", H32),
    ("DJANGO_SECRET_KEY='§'", of(SMALL + "!@#%^&*(-_=+)", 50)),
    ("FLASK_SECRET=§", H48),
    ("HMAC_KEY=§", H64),
    ("COOKIE_SIGNING_KEYS=§,old", W32),
    ("PUSHER_APP_ID=183274\nPUSHER_APP_KEY=2f1a\nPUSHER_APP_SECRET=§", S20),
    ("ALGOLIA_ADMIN_KEY=§", H32),
    ("NGROK_AUTHTOKEN=§", W48),
    ("GRAFANA_SA_TOKEN=glsa_§_a1b2c3d4", W32),
    # YAML
    ("database:\n  host: db\n  username: app\n  password: §\n  pool: 5", chosen),
    ('spring:\n  datasource:\n    url: jdbc:postgresql://db/app\n    password: "§"', chosen),
    ("production:\n  secret_key_base: §", H128),
    ("users:\n- name: admin\n  user:\n    token: §", jwt),
    ("users:\n- name: admin\n  user:\n    client-key-data: §", b64(300)),
    ("auths:\n  registry.example.com:\n    auth: §", pair("ci", chosen)),
    ("apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n  password: §", b64(12)),
    ('apiVersion: v1\nkind: Secret\nstringData:\n  connection: "Server=db;Uid=app;Pwd=§;"', chosen),
    ("env:\n- name: OPENAI_API_KEY\n  value: §", join("sk-proj-", of(WEB, 60))),
    ("env:\n  - name: DB_PASS\n    value: '§'", chosen),
    ("services:\n  db:\n    environment:\n      - POSTGRES_PASSWORD=§\n      - POSTGRES_DB=shop", chosen),
    ("smtp_auth_username: 'alerts@example.com'\nsmtp_auth_password: '§'", chosen),
    ("basic_auth:\n  username: prometheus\n  password: §", W24),
    (
        "receivers:\n- name: ops\n  slack_configs:\n  - api_url: https://hooks.slack.com/services/T0AB12CD3/B0AB12CD4/§",
        W24,
    ),
    ("pagerduty_configs:\n- service_key: §", H32),
    ("bearer_token: §", W40),
    ("remote_write:\n- url: https://prom.example/push\n  authorization:\n    credentials: §", W40),
    ("api:\n  key: §\n  timeout: 30", W32),
    ("vars:\n  ansible_become_pass: §", chosen),
    ("ansible_ssh_pass: §", chosen),
    ("oidc:\n  client_id: shop\n  client_secret: §", S32),
    ("jwt:\n  secret: §\n  expiration: 86400", W48),
    ("login: { user: root, pass: § }", chosen),
    ('wifi:\n  ssid: "Attic"\n  psk: "§"', chosen),
    ("mqtt:\n  broker: 10.0.0.3\n  username: ha\n  password: !!str §", chosen),
    ("token: >-\n  §\nexpires: never", W40),
    (
        "private_key: |\n  §",
        join(
            "-----BEGIN RSA PRIVATE KEY-----\n  ",
            of(BASE64, 64),
            "\n  ",
            of(BASE64, 64),
            "\n  -----END RSA PRIVATE KEY-----",
        ),
    ),
    # TOML, INI, properties
    ("[pypi]\nusername = __token__\npassword = pypi-§", join("AgEIcHlwaS5vcmc", of(WEB, 120))),
    ("[client]\nuser=root\npassword=§\nhost=localhost", chosen),
    ('[registry]\ntoken = "cio§"', W32),
    ("[default]\naws_access_key_id = AKIAABCDEFGHIJKLMNOP\naws_secret_access_key = §", of(BASE64, 40)),
    ('[smtp]\nhost = mail\nuser = grafana\npassword = """§"""', chosen),
    ("spring.datasource.password=§", chosen),
    ("javax.net.ssl.keyStorePassword=§", plain),
    ("ssl.keystore.password=§\nssl.key.password=changed", chosen),
    (
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password="§";',
        chosen,
    ),
    ("hibernate.connection.password §", chosen),
    ("jasypt.encryptor.password: §", plain),
    ("signing.keyPassword=§", plain),
    ("nexusPassword = §", chosen),
    ("//registry.npmjs.org/:_authToken=npm_§", of(WORD, 36)),
    ('//npm.example.com/:_password="§"', b64(14)),
    ("always-auth=true\n_auth=§", pair("deploy", chosen)),
    ("machine api.example.com login deploy password §", W20),
    ("machine github.com\n  login octo\n  password §", join("ghp_", of(WORD, 36))),
    ("localhost:5432:*:app:§", chosen),
    ('[remote "origin"]\n\turl = https://octo:§@git.example.com/a/b.git', W20),
    ("[credential]\n\thelper = store\nhttps://me:§@dev.example.com", W20),
    ("[b2]\ntype = b2\naccount = 0012ab\nkey = §", join("K001", of(WORD, 27))),
    ("[s3]\ntype = s3\naccess_key_id = Q3AM3UQ867SPQQA43P2F\nsecret_access_key = §", of(BASE64, 40)),
    ("admin_passwd = §", chosen),
    ("db_password = §\ndbfilter = .*", chosen),
    ("requirepass §\nmaxmemory 2gb", W24),
    ("masterauth §", W24),
    ("rpcuser=bitcoin\nrpcpassword=§", W32),
    ("server:\n  secret=§", W32),
    ('authkey = "tskey-auth-§"', join(of(WORD, 12), "-", of(WORD, 32))),
    ("PrivateKey = §\nAddress = 10.0.0.2/32", b64(32)),
    ("PresharedKey = §", b64(32)),
    ('PSK "§"', chosen),
    ('network={\n  ssid="home"\n  psk="§"\n}', chosen),
    (': PSK "§"', chosen),
    ("enable secret 0 §", chosen),
    ("snmp-server community § RO", plain),
    ("username admin privilege 15 password 0 §", chosen),
    ("bindpw §\nbinddn cn=admin,dc=example,dc=com", chosen),
    ("olcRootPW: §", chosen),
    ("ldap_default_authtok = §", chosen),
    # Terraform, CloudFormation, Docker, nginx, Apache
    ('resource "aws_db_instance" "db" {\n  username = "app"\n  password = "§"\n}', chosen),
    ('variable "token" {\n  default = "§"\n}', W40),
    ('provider "cloudflare" {\n  api_token = "§"\n}', of(WEB, 40)),
    ('db_master_password = "§"', chosen),
    ('"MasterUserPassword": "§",', chosen),
    ("Parameters:\n  DBPassword:\n    Type: String\n    Default: §", chosen),
    ("ENV API_TOKEN=§", W40),
    ("ENV API_SECRET §", W40),
    ("ARG NPM_TOKEN=§\nRUN npm ci", join("npm_", of(WORD, 36))),
    ("docker run -e MYSQL_ROOT_PASSWORD=§ -d mysql:8", chosen),
    ("docker login -u ci -p § registry.example.com", W24),
    ('{"auths":{"ghcr.io":{"auth":"§"}}}', pair("octo", W24)),
    ('proxy_set_header Authorization "Bearer §";', W40),
    ("proxy_set_header X-Api-Key §;", W32),
    ('RequestHeader set Authorization "Basic §"', pair("svc", chosen)),
    ("SetEnv APP_SECRET §", W32),
    ("fastcgi_param DB_PASSWORD §;", chosen),
    ("auth_request_set $token §;", jwt),
    ("kubectl create secret generic db --from-literal=password=§", chosen),
    ("helm upgrade shop . --set postgresql.auth.password=§ --wait", chosen),
    ("vault kv put secret/shop api_key=§", W32),
    ("aws ssm put-parameter --name /shop/db --type SecureString --value §", chosen),
    ("heroku config:set SECRET_TOKEN=§ -a shop", H64),
    ("fly secrets set SESSION_KEY=§", W32),
    ("gh secret set DEPLOY_KEY --body §", W40),
    ("gcloud sql users set-password app --instance=main --password=§", chosen),
    ("az sql server create -n s -u adm -p §", chosen),
    ("curl -u admin:§ https://jenkins.example.com/job/a/build", W32),
    ("curl -H 'PRIVATE-TOKEN: §' https://git.example.com/api/v4/projects", of(WEB, 20)),
    ('curl -H "X-Vault-Token: hvs.§" $VAULT_ADDR/v1/sys/health', of(WEB, 90)),
    ("curl --header 'Authorization: token §' https://api.example.com", H40),
    ("curl 'https://maps.example.com/geocode?address=x&key=§'", join("AIza", of(WEB, 35))),
    ("wget --user=me --password='§' https://files.example.com/a.zip", chosen),
    ("sshpass -p '§' ssh root@10.0.0.7", chosen),
    ("mysql -uroot -p§ shop", chosen),
    ("echo '§' | sudo -S apt-get update", chosen),
    ('echo "root:§" | chpasswd', chosen),
    ("useradd -m deploy && echo deploy:§ | chpasswd", chosen),
    ("htpasswd -b -c .htpasswd admin §", chosen),
    ("openssl enc -aes-256-cbc -k § -in a -out b", chosen),
    ("openssl rsa -in key.pem -passin pass:§", chosen),
    ("gpg --batch --passphrase § -d backup.gpg", plain),
    ("7z x -p§ backup.7z", chosen),
    ("unzip -P § archive.zip", chosen),
    ("zip -e -P § out.zip data/", chosen),
    ("keytool -genkey -alias a -storepass § -keyalg RSA", plain),
    ("redis-cli -h cache -a § ping", W24),
    ("mongosh -u admin -p § --authenticationDatabase admin", chosen),
    ("mosquitto_pub -u dev -P § -t a -m b", chosen),
    ("smbclient //nas/share -U 'me%§'", chosen),
    ("mount -t cifs //nas/x /mnt -o username=me,password=§", chosen),
    ("net use Z: \\\\nas\\x /user:me §", chosen),
    ("ldapsearch -x -D cn=admin,dc=a -w § -b dc=a", chosen),
    ("snowsql -a acme -u etl --password §", chosen),
    ("rclone obscure §", chosen),
    ("borg init; BORG_PASSPHRASE='§' borg create ::x /", chosen),
    ("wp config set DB_PASSWORD §", chosen),
    ("git clone https://oauth2:§@git.example.com/a/b.git", of(WEB, 20)),
    ("pip install --index-url https://ci:§@pypi.example.com/simple pkg", W24),
    ("twine upload -u __token__ -p pypi-§ dist/*", join("AgEIcHlwaS5vcmc", of(WEB, 100))),
    ("npm config set //registry.npmjs.org/:_authToken §", join("npm_", of(WORD, 36))),
    # PHP, JavaScript, Python and other languages
    ("define('DB_PASSWORD', '§');", chosen),
    ("define( 'AUTH_KEY',         '§' );", of(WORD + "!@#$%^&*()-_[]{}<>~+=,.;:/?|", 64)),
    ("$config['encryption_key'] = '§';", H32),
    ("'password' => env('DB_PASSWORD', '§'),", chosen),
    ("$db = new PDO('mysql:host=db', 'app', '§');", chosen),
    ('$mysqli = mysqli_connect("localhost", "root", "§", "shop");', chosen),
    ("$mail->Password = '§';", chosen),
    ("const client = new Client({ user: 'app', password: '§' })", chosen),
    ("app.use(session({ secret: '§', resave: false }))", W24),
    ("jwt.sign({ id }, '§', { expiresIn: '1d' })", W32),
    ('jwt.verify(token, "§")', W32),
    ("axios.defaults.headers.common['Authorization'] = 'Bearer §'", W40),
    ("headers: { 'x-api-key': '§' }", W32),
    ("process.env.API_KEY = process.env.API_KEY || '§'", W32),
    ('os.environ["COHERE_API_KEY"] = "§"', W40),
    ("os.environ.setdefault('TOKEN', '§')", W40),
    ("os.getenv('SECRET', '§')", W32),
    ("conn = psycopg2.connect(host='db', user='app', password='§')", chosen),
    ("app.config['SECRET_KEY'] = b'§'", W24),
    ("client = Client(api_key='§')", W32),
    ("requests.get(url, auth=('svc', '§'))", chosen),
    ("server.login('me@example.com', '§')", chosen),
    ("Fernet(b'§')", b64(32)),
    ("hmac.new(b'§', body, hashlib.sha256)", W32),
    ("engine = create_engine('mysql+pymysql://app:§@db/shop')", escaped(chosen)),
    ('String password = "§";', chosen),
    ('private static final String API_KEY = "§";', W32),
    ('DriverManager.getConnection(url, "sa", "§")', chosen),
    ('Environment.SetEnvironmentVariable("API_KEY", "§");', W32),
    ('"ConnectionStrings": { "Default": "Server=.;Database=a;User Id=sa;Password=§;" }', chosen),
    ("DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=§;EndpointSuffix=core.windows.net", b64(64)),
    ("Endpoint=sb://a.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=§", b64(32)),
    ('const apiKey string = "§"', W32),
    ('cfg.Password = "§"', chosen),
    ('token := "§"', W40),
    ('let secret: &str = "§";', W32),
    ('.with_password("§")', chosen),
    ('val password by extra("§")', chosen),
    ('let apiKey = "§" // TODO move', W32),
    ('static NSString *const kApiSecret = @"§";', W32),
    ('#define WIFI_PASS "§"', chosen),
    ('const char* password = "§";', chosen),
    ('WiFi.begin("Attic", "§");', chosen),
    ("my $password = q{§};", chosen),
    ('api_key <- "§"', W32),
    ('Sys.setenv(OPENAI_KEY = "§")', W48),
    ('config :shop, Shop.Endpoint, secret_key_base: "§"', of(BASE64, 64)),
    ('(def password "§")', chosen),
    ("local secret = '§'", W32),
    ('Dim password As String = "§"', chosen),
    ("password := '§';", chosen),
    ("CREATE USER app WITH PASSWORD '§';", chosen),
    ("ALTER USER 'app'@'%' IDENTIFIED BY '§';", chosen),
    ("CREATE LOGIN etl WITH PASSWORD = N'§';", chosen),
    ("CREATE SECRET s (TYPE S3, KEY_ID 'AKIAABCDEFGHIJKLMNOP', SECRET '§');", of(BASE64, 40)),
    ("INSERT INTO users (name, password) VALUES ('ann', '§');", chosen),
    ("UPDATE accounts SET passwd = '§' WHERE id = 7;", chosen),
    # Logs and messages
    ("2026-03-01 12:00:01 DEBUG LoginController - user=ann password=§ ip=10.0.0.1", chosen),
    ("DEBUG:urllib3: GET /v1/data?access_token=§&page=2 HTTP/1.1 200", W40),
    ('level=debug msg="auth ok" token=§ user=7', W32),
    ("[error] connect failed: postgres://svc:§@10.1.2.3:5432/app: timeout", chosen),
    ("> Authorization: Bearer §\n> Accept: */*", jwt),
    ("< Set-Cookie: sessionid=§; HttpOnly; Path=/", S32),
    ("Cookie: JSESSIONID=§; theme=dark", of(CAPITAL, 32)),
    ("Cookie: _ga=GA1.2.3; connect.sid=s%3A§", W32),
    ("X-Amz-Security-Token: §", b64(200)),
    ("https://a.s3.amazonaws.com/k?X-Amz-Credential=a&X-Amz-Signature=§", H64),
    ("https://acme.blob.core.windows.net/c?sv=2022-11-02&sp=r&sig=§", escaped(b64(32))),
    ("GET /callback?code=§&state=x HTTP/1.1", W40),
    ("https://app.example.com/reset?token=§", H40),
    ("https://hooks.example.com/in?secret=§", W24),
    ("wss://stream.example.com/ws?apikey=§", W32),
    ('{"event":"login","payload":"{\\"user\\":\\"ann\\",\\"password\\":\\"§\\"}"}', chosen),
    ('"{\\"headers\\": {\\"Authorization\\": \\"Bearer §\\"}}"', W40),
    ("{'Authorization': 'Basic §'}", pair("api", chosen)),
    ("grant_type=password&username=ann&password=§", escaped(chosen)),
    ("grant_type=refresh_token&refresh_token=§&client_id=web", W48),
    ('{"access_token":"§","token_type":"Bearer","expires_in":3600}', W48),
    ('{"type":"service_account","private_key":"§"}', one_line("PRIVATE KEY")),
    ('{"kty":"oct","k":"§"}', of(WEB, 43)),
    ('{"name":"api-key","value":"§"}', W32),
    ('["Authorization", "Bearer §"]', W40),
    ('<add key="ApiSecret" value="§" />', W32),
    ("<password>§</password>", chosen),
    ('<property name="connection.password">§</property>', chosen),
    ('<wsse:Password Type="x#PasswordText">§</wsse:Password>', chosen),
    ('<input type="hidden" name="csrf_token" value="§">', of(WEB, 43)),
    ('<input type="password" name="pw" value="§">', chosen),
    ("| user | password |\n|---|---|\n| ann | § |", chosen),
    ("username,password\nann,§", chosen),
    ("The password for the staging account is §", chosen),
    ("Your temporary password: §", chosen),
    ("login with ann / §", chosen),
    ("my api key is §, please use it", W32),
    ("use token § for the request", W40),
    ("Your verification code is §.", of(DIGITS, 6)),
    ("otpauth://totp/Shop:ann?secret=§&issuer=Shop", of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 32)),
    ("Enter passphrase for key '/home/kim/.ssh/id_rsa': §", plain),
    ("recovery codes:\n§\n", join(of(SMALL, 5), "-", of(SMALL, 5))),
    ("§", pem("OPENSSH PRIVATE KEY")),
    (
        "§",
        join(
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n",
            of(BASE64, 64),
            "\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----",
        ),
    ),
    ("AGE-SECRET-KEY-1§", of("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58)),
    ("age key: §", join("AGE-SECRET-KEY-1", of("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58))),
    (
        "seed phrase: §",
        lambda d: " ".join(
            d.sample(
                [
                    "abandon",
                    "ability",
                    "lobster",
                    "orchard",
                    "panther",
                    "quantum",
                    "ribbon",
                    "saddle",
                    "tobacco",
                    "umbrella",
                    "velvet",
                    "wagon",
                    "zebra",
                    "mimic",
                ],
                12,
            )
        ),
    ),
    (
        '"mnemonic": "§"',
        lambda d: " ".join(
            d.sample(
                [
                    "abandon",
                    "ability",
                    "lobster",
                    "orchard",
                    "panther",
                    "quantum",
                    "ribbon",
                    "saddle",
                    "tobacco",
                    "umbrella",
                    "velvet",
                    "wagon",
                    "zebra",
                    "mimic",
                ],
                12,
            )
        ),
    ),
    ("PRIVATE_KEY=0x§", H64),
    ('accounts: ["0x§"], // deployer key', H64),
    ("mot de passe : §", chosen),
    ("contraseña: §", chosen),
    ("Passwort: §", chosen),
    ("senha=§", chosen),
    ("пароль: §", chosen),
    ("密码:§", chosen),
    ("パスワード: §", chosen),
    ("hasło: §", chosen),
    ("wachtwoord: §", chosen),
    ("lösenord = §", chosen),
    ("heslo: §", chosen),
    ("şifre: §", chosen),
    ("비밀번호: §", chosen),
    ("MOT_DE_PASSE=§", chosen),
    ('clave_secreta = "§"', W24),
    ("SECRET_TOKEN_PROD\n§", W40),
]
"""What must go."""

PLAIN_HARMLESS = r"""
NODE_ENV=production
PORT=3000
DEBUG=false
LOG_LEVEL=info
DATABASE_URL=postgresql://localhost:5432/shop
DATABASE_URL=postgresql://app@db/shop
REDIS_URL=redis://cache:6379/0
AMQP_URL=amqp://rabbit:5672
DB_PASSWORD=
DB_PASSWORD=${DB_PASSWORD}
DB_PASSWORD=$(cat /run/secrets/db)
DB_PASSWORD_FILE=/run/secrets/db_password
POSTGRES_PASSWORD_FILE: /run/secrets/pg
API_KEY=<your-api-key>
API_KEY=your_api_key_here
API_KEY=xxxxxxxxxxxxxxxx
API_KEY=REPLACE_ME
API_KEY=
export TOKEN=$(aws ecr get-login-password)
export TOKEN="$GITHUB_TOKEN"
TOKEN=${TOKEN:?must be set}
SECRET_NAME=shop/prod/db
AWS_REGION=eu-west-1
AWS_PROFILE=prod
PATH=/usr/local/bin:/usr/bin:/bin
PWD=/home/ann/work
OLDPWD=/var/log/nginx
SSH_AUTH_SOCK=/tmp/ssh-agent.sock
GPG_TTY=/dev/pts/0
XAUTHORITY=/home/ann/.Xauthority
PASSENGER_APP_ENV=production
TOKENIZERS_PARALLELISM=false
MAX_TOKENS=4096
TOKEN_LIMIT=100000
TOKEN_TTL_SECONDS=3600
PASSWORD_MIN_LENGTH=12
PASSWORD_RESET_TIMEOUT=259200
KEYBOARD_LAYOUT=de
KEYCLOAK_URL=https://sso.example.com/auth
KEY_PREFIX=shop:
CACHE_KEY_PREFIX=v3
PRIMARY_KEY=id
PARTITION_KEY=tenant_id
SORT_KEY=created_at
AUTH_ENABLED=true
AUTH_METHOD=ldap
AUTH_BACKEND=django.contrib.auth.backends.ModelBackend
SESSION_DRIVER=redis
SESSION_LIFETIME=120
SESSION_COOKIE_SECURE=True
SECURE_SSL_REDIRECT=True
CREDENTIALS_PROVIDER=instance-profile
GOOGLE_APPLICATION_CREDENTIALS=/etc/gcp/key.json
SECRET_BACKEND=vault
ENCRYPTION=aes-256-gcm
HASHING_ALGORITHM=argon2id
PASSWORD_HASHER=bcrypt
USE_PASSWORD=yes
REQUIRE_PASSWORD=0
ALLOW_EMPTY_PASSWORD=yes
MYSQL_ALLOW_EMPTY_PASSWORD: "yes"
MYSQL_RANDOM_ROOT_PASSWORD: "1"
NEXT_PUBLIC_API_URL=https://api.example.com
VAULT_ADDR=https://vault.internal:8200
OP_ACCOUNT=my.1password.com
DOPPLER_PROJECT=shop
SOPS_AGE_KEY_FILE=/home/kim/.config/sops/age/keys.txt
KUBECONFIG=/home/kim/.kube/config
password: ""
password: null
password: ~
password: true
password: required
password: [required, min:8]
password: {{ .Values.db.password }}
password: {{ vault_db_password }}
password: ${POSTGRES_PASSWORD}
password: !vault |
password: !secret db_password
password: *default_password
password: <%= ENV['DB_PASSWORD'] %>
password: "********"
password: "<redacted>"
password: [FILTERED]
password: (hidden)
password: string
password: String!
password: varchar(255)
password_field: "#password"
passwordPolicy: strong
passwordExpiry: 90
secretName: shop-tls
secretRef: db-credentials
secretKeyRef:\n  name: db\n  key: password
existingSecret: shop-redis
imagePullSecrets:\n- name: regcred
tokenReview: true
serviceAccountToken:\n  path: token\n  expirationSeconds: 3600
automountServiceAccountToken: false
tokens: 1532
prompt_tokens: 812
completion_tokens: 133
total_tokens: 945
cached_tokens: 0
reasoning_tokens: 512
token_count: 18
max_new_tokens: 256
num_tokens: 31
pad_token: <pad>
eos_token: </s>
eos_token_id: 50256
bos_token: "<s>"
unk_token: [UNK]
mask_token: <mask>
token: the
token: "un##believ"
token_type: Bearer
token_type_ids: [0, 0, 1]
tokenizer: cl100k_base
token_endpoint: https://sso.example.com/oauth/token
token_endpoint_auth_method: client_secret_post
tokenUrl: /oauth/token
introspection_endpoint: https://sso.example.com/introspect
jwks_uri: https://sso.example.com/.well-known/jwks.json
grant_type: client_credentials
response_type: code
code_challenge_method: S256
scopes: read write admin
audience: https://api.example.com
issuer: https://sso.example.com/
client_id: shop-frontend
auth: none
auth: true
auth_type: basic
authentication: required
author: Ann Lee
authors: Ann Lee, Bob Ray
authority: https://login.example.com
authorized_keys: ~/.ssh/authorized_keys
authorization_code
authorizationUrl: https://sso.example.com/authorize
key: value
key: name
key: Enter
key: created_at
keys: [a, b, c]
keyboard: us
keywords: shop, cart, basket
keyframes: fade 2s
keyspace: shop
keystore: /etc/ssl/app.jks
keystore_type: PKCS12
key_file: /etc/ssl/private/app.key
key_name: deploy-2024
key_type: ed25519
key_size: 4096
key_version: 3
key_usage: digitalSignature
apiVersion: v1
api_key_header: X-API-Key
api_key_env: OPENAI_API_KEY
api_key: os.environ/OPENAI_API_KEY
api_key: ${env:OPENAI_API_KEY}
api_key: env("API_KEY")
api_key: "{{api_key}}"
api_key: YOUR_API_KEY
api_key: <API_KEY>
api_key: "..."
api_key: none
api_key_required: true
public_key: /etc/keys/app.pub
private_key: /etc/keys/app.pem
private_key_path: ~/.ssh/id_ed25519
ssl_certificate /etc/nginx/ssl/shop.crt;
ssl_certificate_key /etc/nginx/ssl/shop.key;
ssl_password_file /etc/keys/global.pass;
auth_basic "Restricted area";
auth_basic_user_file /etc/nginx/.htpasswd;
auth_request /oauth2/auth;
proxy_set_header Authorization $http_authorization;
proxy_set_header X-Api-Key $arg_key;
proxy_pass_header Authorization;
proxy_pass http://backend:8080/token;
location /api/token { proxy_pass http://auth; }
add_header Access-Control-Allow-Headers "Authorization, X-Api-Key";
limit_req_zone $binary_remote_addr zone=login:10m rate=5r/m;
AuthUserFile /etc/apache2/.htpasswd
AuthName "Members only"
Require valid-user
PasswordAuthentication no
PermitRootLogin prohibit-password
PubkeyAuthentication yes
AuthorizedKeysFile .ssh/authorized_keys
IdentityFile ~/.ssh/id_rsa
HostKey /etc/ssh/ssh_host_ed25519_key
KexAlgorithms curve25519-sha256
requirepass ""
# requirepass foobared
bind 127.0.0.1
protected-mode yes
max_password_attempts = 5
password_encryption = scram-sha-256
passwordauth=false
password-stdin
--password-stdin
--token-file /run/token
--secret-id shop/db
--key-name deploy
--api-key $API_KEY
--password "$PASS"
--password=$(pass show db)
--max-tokens 512
--no-password
--keyring /usr/share/keyrings/docker.gpg
--with-token < token.txt
docker login -u ci --password-stdin
docker run -e MYSQL_ROOT_PASSWORD -d mysql:8
docker run -p 8080:80 nginx
docker secret ls
docker secret create db_password ./pw.txt
mkdir -p build/output
ssh -p 2222 root@10.0.0.7
scp -P 2222 a.txt root@host:/tmp
ssh-keygen -t ed25519 -C ann@example.com
ssh-add ~/.ssh/id_ed25519
ssh-copy-id deploy@host
passwd ann
sudo passwd -l root
getent passwd ann
cat /etc/passwd
root:x:0:0:root:/root:/bin/bash
ann:x:1000:1000:Ann Lee,,,:/home/ann:/bin/zsh
daemon:*:18375:0:99999:7:::
mysql -u root -p shop
mysql -u root --password
psql "host=db user=app dbname=shop sslmode=require"
pg_dump -W -U app shop
redis-cli -h cache ping
curl -u "$USER:$PASS" https://api.example.com
curl -H "Authorization: Bearer $TOKEN" https://api.example.com
curl -H 'Authorization: Bearer <token>' https://api.example.com
curl -n https://api.example.com
curl -X POST https://api.example.com/v1/tokens
kubectl get secret db -o yaml
kubectl create secret generic db --from-file=password=./pw.txt
kubectl create token default
kubectl describe secrets
helm upgrade shop . --set image.tag=1.4.2
vault kv get secret/shop
vault login -method=github
vault token lookup
aws secretsmanager get-secret-value --secret-id shop/db
aws sts get-session-token
aws kms list-keys
gcloud auth application-default login
gcloud auth print-access-token
az keyvault secret show --name db --vault-name kv
gh auth login --with-token < t.txt
gh secret list
gh secret set DEPLOY_KEY < key.pem
git config --global credential.helper store
git config user.signingkey 3AA5C34371567BD2
git commit -S -m "Rotate the token"
git log --grep=password
grep -rn "password" src/
grep -i token app.log | wc -l
rg 'api_key\s*=' --type py
find . -name "*.key" -delete
sed -i 's/password=.*/password=/' app.ini
awk -F: '{print $1}' /etc/passwd
openssl rand -hex 32
openssl genrsa -out key.pem 4096
openssl req -new -key key.pem -out a.csr
openssl x509 -in cert.pem -noout -text
openssl rsa -in key.pem -passin file:pw.txt
openssl rsa -in key.pem -passin env:PASS
gpg --list-secret-keys
gpg --export -a 3AA5C34371567BD2
keytool -list -keystore app.jks
pass show shop/db
pwgen 24 1
htpasswd -c .htpasswd admin
certbot certonly --nginx -d shop.example.com
export PASSWORD; read -s PASSWORD
read -sp "Password: " pw
echo $PASSWORD
echo "Enter password:"
[sudo] password for ann:
Password:
password for 'https://git.example.com':
Enter passphrase for key '/home/kim/.ssh/id_rsa':
Login incorrect
su: Authentication failure
Permission denied (publickey,password).
root@10.0.0.7's password:
password = os.environ["DB_PASSWORD"]
password = os.getenv("DB_PASSWORD")
password = getpass.getpass()
password = request.form["password"]
password = data.get("password", "")
password = None
password = user.password
password = settings.DB_PASSWORD
password = generate_password(16)
password = input("Password: ")
password == confirm_password
password != ""
if password is None:
if not password: raise ValueError("password required")
if token.is_expired():
if token.type == "NAME":
for token in tokens:
for key, value in data.items():
def login(user: str, password: str) -> Session:
def verify_password(plain: str, hashed: str) -> bool:
def __init__(self, api_key: str | None = None):
api_key: Optional[str] = None
api_key = os.environ.get("OPENAI_API_KEY")
api_key=settings.openai_api_key,
api_key=api_key
token = tokenizer.decode(ids)
token = response.json()["access_token"]
token = jwt.encode(payload, key, algorithm="HS256")
token = secrets.token_urlsafe(32)
token = next(tokens)
secret = client.secrets.get(name)
secret = config.secret
key = lambda row: row.name
key = f"{user.id}:{day}"
key = hashlib.sha256(body).hexdigest()
key=lambda x: x[1]
key=operator.itemgetter("score")
sorted(rows, key=len, reverse=True)
cache.get(key="user:7")
pd.merge(a, b, left_on="key", right_on="id")
primary_key=True, nullable=False
ForeignKey("users.id")
Column("password", String(60))
models.CharField(max_length=128, verbose_name="password")
password = forms.CharField(widget=forms.PasswordInput)
from django.contrib.auth.tokens import default_token_generator
import keyring
from secrets import token_hex
class TokenBucket:
class PasswordResetView(FormView):
raise AuthenticationError("invalid api key")
assert "password" not in response.text
logger.info("token refreshed for %s", user)
print("password changed")
const { password } = req.body;
const token = req.headers.authorization;
const token = localStorage.getItem('token');
const token = await getToken();
const key = Object.keys(row)[0];
const apiKey = process.env.API_KEY;
const secret = process.env.SECRET!;
password: { type: String, required: true }
password: z.string().min(8)
password: Joi.string().required()
password?: string;
password: string;
token: string | null;
interface Credentials { user: string; password: string }
type Token = { kind: string; value: string };
<input type="password" name="password" placeholder="Password">
<input type="password" autocomplete="current-password">
<label for="password">Password</label>
<Key code="Enter" />
<PasswordField v-model="form.password" />
onKeyDown={handleKey}
event.key === "Escape"
headers.set("Authorization", `Bearer ${token}`)
headers: { Authorization: `Bearer ${process.env.TOKEN}` }
headers={"Authorization": f"Bearer {token}"}
app.use(session({ secret: process.env.SESSION_SECRET }))
jwt.verify(token, process.env.JWT_SECRET)
$password = $_POST['password'];
$password = password_hash($plain, PASSWORD_DEFAULT);
'password' => 'required|min:8|confirmed',
'password' => env('DB_PASSWORD'),
'password' => env('DB_PASSWORD', ''),
define('DB_PASSWORD', getenv('DB_PASSWORD'));
define('DB_CHARSET', 'utf8mb4');
define('WP_DEBUG', false);
$table_prefix = 'wp_';
'guards' => ['api' => ['driver' => 'token']],
String password = System.getenv("DB_PASSWORD");
String password = props.getProperty("password");
private String password;
private final String apiKey;
@Value("${db.password}") private String password;
public void setPassword(String password) { this.password = password; }
return password.equals(other);
spring.datasource.password=${DB_PASSWORD}
spring.datasource.username=app
spring.security.oauth2.client.registration.google.scope=email
security.basic.enabled=false
server.ssl.key-store=classpath:app.p12
server.ssl.key-alias=shop
management.endpoint.env.keys-to-sanitize=password,secret,key,token
ssl.keystore.location=/etc/kafka/app.jks
key.serializer=org.apache.kafka.common.serialization.StringSerializer
key.converter=org.apache.kafka.connect.json.JsonConverter
cfg.Password = os.Getenv("DB_PASSWORD")
password := os.Getenv("DB_PASSWORD")
token, err := client.Token(ctx)
func NewClient(apiKey string) *Client {
Password string `json:"password"`
Token string `json:"token,omitempty"`
map[string]string{"key": "value"}
let password = std::env::var("DB_PASSWORD")?;
let token = lexer.next_token();
pub password: Option<String>,
ENV["SECRET_KEY_BASE"]
secret_key_base: <%= ENV["SECRET_KEY_BASE"] %>
Rails.application.credentials.secret_key_base
validates :password, length: { minimum: 8 }
has_secure_password
attr_accessor :token
Dim password As String
Dim token As Token = lexer.Read()
local token = lexer:next()
variable "db_password" { type = string sensitive = true }
password = var.db_password
password = random_password.db.result
token = data.vault_generic_secret.cf.data["token"]
secret_string = aws_secretsmanager_secret_version.db.secret_string
secret_id = aws_secretsmanager_secret.db.id
key_name = aws_key_pair.deploy.key_name
kms_key_id = aws_kms_key.main.arn
public_key = file("~/.ssh/id_ed25519.pub")
manage_master_user_password = true
MasterUserPassword: !Ref DBPassword
MasterUserPassword: '{{resolve:secretsmanager:db:SecretString:password}}'
SecretArn: arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop-a1b2c3
KmsKeyId: arn:aws:kms:eu-west-1:123456789012:key/0d990263-018e-4e65-a703-eff731de951e
arn:aws:iam::123456789012:user/ann
ARG NPM_TOKEN
ENV PYTHONUNBUFFERED=1
RUN --mount=type=secret,id=npmrc npm ci
secrets: inherit
secrets:\n  db_password:\n    external: true
token: ${{ secrets.GITHUB_TOKEN }}
password: ${{ secrets.DOCKERHUB_TOKEN }}
GITHUB_TOKEN: ${{ github.token }}
passphrase: ${{ secrets.GPG_PASSPHRASE }}
password: $(DB_PASSWORD)
DB_PASSWORD: ((db-password))
apiKey: ENC[AES256_GCM,type:str]
password: op://shop/db/password
password: vault:secret/data/db#password
password: awssm://shop/db
password: keyring:db
password: file:///run/secrets/db
CREATE USER app;
CREATE TABLE users (id int, password text NOT NULL);
ALTER TABLE users ADD COLUMN token varchar(64);
ALTER USER app PASSWORD EXPIRE;
SELECT id, password FROM users WHERE name = ?
UPDATE users SET password = ? WHERE id = ?
UPDATE users SET password = :password WHERE id = :id
INSERT INTO users (name, password) VALUES ($1, $2)
WHERE token IS NULL
PRIMARY KEY (id), FOREIGN KEY (user_id) REFERENCES users (id)
CREATE INDEX sessions_token ON sessions (token);
GRANT SELECT ON shop.* TO 'app'@'%';
Your password was changed on 3 May.
Your password expires in 14 days.
Your password must have at least 12 characters.
The password is wrong.
The password is required.
The password is case-sensitive.
The password is stored in the vault.
The password must be rotated every 90 days
Please reset your password: https://app.example.com/reset
Forgot your password? Click here.
password reset requested for ann@example.com
password protected
password manager: Bitwarden
password hashing with argon2
password or token is missing
password authentication failed for user "app"
Access denied for user 'root'@'localhost' (using password: YES)
Access denied for user 'root'@'localhost' (using password: NO)
FATAL: password authentication failed
invalid_client: client_secret is missing
AADSTS7000215: Invalid client secret provided.
Incorrect API key provided.
Error: token expired at 2026-03-01T12:00:00Z
Unexpected token < in JSON at position 0
SyntaxError: Unexpected token 'export'
error: unexpected token near 'fi'
invalid syntax near token "SELECT"
KeyError: 'password'
KeyError: 'api_key'
TypeError: login() missing 1 required argument: 'password'
AttributeError: 'NoneType' object has no attribute 'token'
duplicate key value violates unique constraint "users_pkey"
key not found: user:7
Missing key: OPENAI_API_KEY
The key to good onboarding is patience.
The secret to a good sauce is time.
A secret ballot was held on Tuesday.
Secretary: Ann Lee
the Secretariat of State
Keynote: 10:00 to 11:00
Keyboard shortcuts: press any key
Turn the key clockwise.
monkey: capuchin
turkey: 2 kg
hockey = ice
donkey=Benjamin
passage: Genesis 1
passenger: Bob Ray
passport office: room 7
compass: north-east
bypass=true
password123 is the most common password of 2023.
Passing grade: 65
boarding pass: gate B12
season pass: sold out
tokenised text: 14 words
Token ring networks
a token of our thanks
Bearer of bad news
the bearer of this letter
Basic training begins Monday
Basic Auth is not supported
authorization: see section 4
Authorization: Bearer <token>
Authorization: Bearer {token}
Authorization: Bearer $ACCESS_TOKEN
Authorization: Basic <base64 of user:password>
WWW-Authenticate: Bearer realm="api", error="invalid_token"
WWW-Authenticate: Basic realm="Jenkins"
Access-Control-Allow-Credentials: true
Cache-Control: private, max-age=0
Vary: Cookie, Authorization
Set-Cookie: theme=dark; Path=/; Max-Age=31536000
Set-Cookie: sessionid=; Max-Age=0; Path=/
Cookie: theme=dark; lang=en
Cookie policy: we use cookies.
Content-Type: application/x-www-form-urlencoded
Content-Security-Policy: default-src 'self'; script-src 'nonce'
X-RateLimit-Remaining: 4999
x-ratelimit-limit-tokens: 30000
x-ratelimit-remaining-tokens: 29811
anthropic-ratelimit-tokens-reset: 2026-03-01T12:00:00Z
openai-processing-ms: 213
https://app.example.com/reset-password
https://app.example.com/login?next=/account
https://app.example.com/docs/api-keys
https://api.example.com/v1/data?page=2&sort=key
https://api.example.com/v1/data?key=name&order=asc
https://api.example.com/v1/data?api_key=YOUR_API_KEY
https://api.example.com/v1/data?token={token}
https://user@example.com/path
https://www.example.com/watch?v=dQw4w9WgXcQ
https://sso.example.com/authorize?response_type=code&client_id=web&state=xyz
git@github.com:acme/shop.git
ssh://git@example.com:2222/acme/shop.git
mailto:ann@example.com
jdbc:postgresql://db:5432/shop?user=app&ssl=true
mongodb://db1:27017,db2:27017/shop?replicaSet=rs0
mongodb+srv://<username>:<password>@cluster0.example.net
postgres://user:password@host:port/dbname
postgres://${USER}:${PASS}@db/shop
Server=.;Database=shop;Trusted_Connection=True;
Server=.;Database=shop;User Id=sa;Password={0};
{"password": "********"}
{"password": null, "user": "ann"}
{"password": {"type": "string", "minLength": 8}}
{"type": "object", "properties": {"api_key": {"type": "string"}}}
{"name": "password", "in": "formData", "required": true}
{"name": "token", "type": "string", "description": "the token"}
{"usage": {"prompt_tokens": 12, "completion_tokens": 40}}
{"logprobs": [{"token": "Hello", "logprob": -0.12}]}
{"token": " world", "bytes": [32, 119]}
{"key": "ArrowDown", "code": 40}
{"key": "shop.cart.title", "value": "Your basket"}
{"error": "invalid_token", "error_description": "expired"}
{"authenticated": true, "auth_method": "sso"}
{"secret": false, "sensitive": true}
{"keys": ["id", "name"], "primaryKey": "id"}
{"kid": "2024-03-key", "alg": "RS256", "use": "sig"}
{"tool": "get_password_policy", "args": {}}
{"passwordResetRequired": false}
{"secretsManager": "aws", "rotation": 30}
username,password,role
| field | type |\n| password | string |
| Option | Meaning |\n| `--token` | the token to send |
`password`: the password of the account
- `api_key` (string): your key
- token: the token that the login returned
- password - at least eight letters
# Passwords
## API keys
See https://docs.example.com/tokens for how to make one.
You need an API key to continue.
Set OPENAI_API_KEY to your key.
Put the token in the Authorization header.
Tokens are valid for 1 hour.
Each key is shown once.
Never share your password with anyone.
Wi-Fi password: ask at the desk
Passwort vergessen?
Passwort: mindestens 12 Zeichen
mot de passe oublié
contraseña incorrecta
senha inválida
The combination is on the back of the door.
PIN: see the letter
Two-factor authentication: enabled
2FA code expired
Verification code sent to +44 20 7946 0958
Code: E_TIMEOUT
error code: 1045
Invoice number: 2026-00417
Order 112-3456789-1234567
ISBN 978-3-16-148410-0
DE89370400440532013000
VAT: DE123456789
Room code B-204
postcode: SW1A 1AA
discount code SPRING10
dress code: casual
""".strip("\n").split("\n")

DRAWN_HARMLESS: list[tuple[str, Draw]] = [
    ("commit §", H40),
    ("Merge: § into main", of(HEX, 7)),
    ("FROM node@sha256:§", H64),
    ("sha256:§", H64),
    ("SHA256 (a.tar.gz) = §", H64),
    ("§  dist/app.js", H64),
    ("md5: §", H32),
    ('ETag: "§"', H32),
    ('If-None-Match: W/"§"', H16),
    ('"integrity": "sha512-§"', b64(64)),
    ('integrity="sha384-§" crossorigin', b64(48)),
    ("h1:§ go.sum", b64(32)),
    ("--hash=sha256:§", H64),
    ('checksum = "§"', H64),
    ("traceparent: 00-§-00f067aa0ba902b7-01", H32),
    ("trace_id=§", H32),
    ("span_id: §", H16),
    ("X-Request-Id: §", some_uuid),
    ("request_id=§", some_uuid),
    ("correlationId: §", some_uuid),
    ('"id": "chatcmpl-§"', of(WORD, 29)),
    ('"id": "msg_§"', of(WORD, 24)),
    ('"tool_call_id": "call_§"', of(WORD, 24)),
    ('"id": "toolu_§"', of(WORD, 24)),
    ("run_id: run_§", W24),
    ("thread_§", W24),
    ("asst_§", W24),
    ("file-§", W24),
    ('"system_fingerprint": "fp_§"', of(HEX, 10)),
    ("customer: cus_§", of(WORD, 14)),
    ("charge ch_§ failed", W24),
    ("price_§", W24),
    ("pk_live_§", W24),
    ("pk_test_§", W24),
    ("AccountId: §", of(DIGITS, 12)),
    ("i-§ is running", of(HEX, 17)),
    ("vpc-§", of(HEX, 17)),
    ("ami-§", of(HEX, 17)),
    ("tenant: §", some_uuid),
    ("subscriptionId: §", some_uuid),
    ("client_id=§", some_uuid),
    ("client_id: §.apps.googleusercontent.com", join(of(DIGITS, 12), "-", of(SMALL, 32))),
    ("key_id: §", some_uuid),
    ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI§ ann@laptop", of(BASE64, 43)),
    ("ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAB§ deploy", of(BASE64, 200)),
    ("SHA256:§ root@host (ED25519)", of(BASE64, 43)),
    ("-----BEGIN CERTIFICATE-----\n§\n-----END CERTIFICATE-----", of(BASE64, 64)),
    ("-----BEGIN PUBLIC KEY-----\n§\n-----END PUBLIC KEY-----", of(BASE64, 64)),
    ("-----BEGIN PGP SIGNATURE-----\n\n§\n-----END PGP SIGNATURE-----", of(BASE64, 64)),
    ("PublicKey = §", b64(32)),
    ("age1§", of("qpzry9x8gf2tvdw0s3jn54khce6mua7l", 58)),
    ("data:image/png;base64,iVBORw0KGgo§", of(BASE64, 120)),
    ("certificate-authority-data: §", b64(120)),
    ("ca.crt: §", b64(120)),
    ("pod/shop-§-x7k2p", of(HEX, 10)),
    ("container §", H64),
    ("blob §", H40),
    ("index §..1a2b3c4 100644", of(HEX, 7)),
    ('"resolved": "https://registry.example/a.tgz#§"', H40),
    ("app.§.js", of(HEX, 8)),
    ("/static/css/main.§.css", of(HEX, 20)),
    ("0x§", of(HEX, 40)),
    ("tx 0x§", H64),
    ("block hash: §", H64),
    ('ObjectId("§")', H24),
    ('"_id": "§"', H24),
    ("uuid: §", some_uuid),
    ("ulid: 01§", of("0123456789ABCDEFGHJKMNPQRSTVWXYZ", 24)),
    ("slug: §", lambda d: "-".join(d.sample(["blue", "shop", "cart", "river", "north", "lamp"], 4))),
    ("https://docs.google.com/document/d/§/edit", of(WEB, 44)),
    ("https://youtu.be/§", of(WEB, 11)),
    ("https://gist.github.com/octo/§", H32),
    ("https://github.com/acme/shop/commit/§", H40),
    ("https://sentry.example.com/issues/§", of(DIGITS, 10)),
    ("message-id: <§@mail.example.com>", S32),
    ("DKIM-Signature: v=1; a=rsa-sha256; bh=§", b64(32)),
    ("Sec-WebSocket-Key: §", b64(16)),
    ("nonce-§", of(WEB, 22)),
    ("serial: §", of(HEX, 36)),
    ("MAC 00:1a:§", lambda d: ":".join(of(HEX, 2)(d) for _ in range(4))),
    ("phone: +49 §", of(DIGITS, 10)),
    ("order_token_count=§", of(DIGITS, 4)),
    ("tokens_used: §", of(DIGITS, 5)),
    ("password_changed_at: 2026-03-§", lambda d: f"{d.randrange(10, 28)}"),
    ("api_key_id: §", of(SMALL, 12)),
    ("secret_version: §", of(DIGITS, 2)),
    ("key_fingerprint: §", lambda d: ":".join(of(HEX, 2)(d) for _ in range(16))),
    ("cache_key: user:§:profile", of(DIGITS, 5)),
    ("idempotency_key: §", some_uuid),
    ("Idempotency-Key: §", some_uuid),
    ("dedup_key=§", H32),
    ("sort_key=§", of(LOWER, 8)),
    ("partition_key: §", some_uuid),
    ("public_key: §", b64(32)),
    ("publishable_key=pk_live_§", W24),
    ("site_key: §", of(WEB, 40)),
    ("the test ran in §.2 s", of(DIGITS, 2)),
]


def _rows(name: str, lines: list[tuple[str, Draw]], secret: bool) -> list[Labelled]:
    rows = []
    for place, (text, make) in enumerate(lines):
        value = make(random.Random(f"{name} {place}"))
        rows.append(Labelled(text[:40], text.replace("§", value), value if secret else ""))
    return rows


SETTING_SETS: dict[str, tuple[list[Labelled], list[Labelled]]] = {
    "settings": (
        _rows("settings", SECRETS, True),
        _rows("settings", DRAWN_HARMLESS, False)
        + [Labelled(line[:40], line.replace("\\n", "\n"), "") for line in PLAIN_HARMLESS],
    )
}
"""Name → texts with secrets, and harmless ones."""
