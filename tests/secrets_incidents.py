# ruff: noqa: E501 - one shape a line
"""Secrets as they are found where they should not be: tickets, pipelines, dumps, notebooks, chats, and what is beside them.

Written before the rules were mended by what `secrets_sessions` had shown, and asked once; then one half was shown and the
other held back: docs/decisions/058 has the figures.  The look-alikes are lines of Python's own library, which nobody
here wrote.
"""

from __future__ import annotations

import random
import re
import sysconfig
from pathlib import Path

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
from secrets_settings import b64, escaped, pair


def picked(draw: random.Random) -> str:
    """A password as people and small tools make them."""
    word = draw.choice(
        ["Harbor", "walnut", "Giraffe", "thunder", "Lisbon", "cricket", "Emerald", "bishop", "Nutmeg"]
    )
    return draw.choice(
        [
            word + str(draw.randrange(10, 99999)),
            word + draw.choice("@#!_-") + str(draw.randrange(10, 9999)),
            draw.choice(["Qw", "zX", "Pl"])
            + str(draw.randrange(100, 999))
            + word.lower()
            + draw.choice("!?$"),
            word.replace("a", "4").replace("e", "3") + draw.choice(["!!", "2025", "_01"]),
            of(WORD, 12)(draw),
            of(WORD + "!@#$^*-_", 16)(draw),
        ]
    )


W16, W20, W24, W30, W32, W36, W40, W48, W64 = (of(WORD, n) for n in (16, 20, 24, 30, 32, 36, 40, 48, 64))
H32, H40, H64 = of(HEX, 32), of(HEX, 40), of(HEX, 64)
S24, S32 = of(SMALL, 24), of(SMALL, 32)

SECRETS: list[tuple[str, Draw]] = [
    # Pipelines
    ('Run echo "TOKEN=§" >> $GITHUB_ENV', W40),
    ("##vso[task.setvariable variable=dbPassword]§", picked),
    ("+ curl -fsS -H 'Authorization: Bearer §' https://api.example.com/deploy", W40),
    ("+ docker login --username ci --password § registry.example.com", W24),
    ('$ echo "§" | base64 -d > key.json', b64(120)),
    ("ENV npm_config__authToken=§", W36),
    ("Step 4/9 : ARG GITLAB_TOKEN=§", of(WEB, 20)),
    ("build-args: |\n  SENTRY_TOKEN=§", H64),
    ("environment:\n  AWS_SECRET_ACCESS_KEY: §", of(BASE64, 40)),
    ("with:\n  github-token: §", join("ghp_", W36)),
    ("with:\n  password: §\n  registry: ghcr.io", picked),
    ('variables:\n  DB_PASS: "§"', picked),
    ("- export SLACK_TOKEN=§", join("xoxb-", of(DIGITS, 12), "-", of(DIGITS, 12), "-", W24)),
    ("credentials('nexus') -> PASSWORD=§", picked),
    ("withCredentials: USER=ci PASS=§", picked),
    ("sonar.login=§", H40),
    ("mvn -s settings.xml -Dnexus.password=§ deploy", picked),
    ("./gradlew -Ptoken=§ publish", W32),
    ("fastlane match --git_basic_authorization §", pair("me", W20)),
    ("MATCH_PASSWORD=§ fastlane ios beta", picked),
    ("codecov -t §", some_uuid),
    ("npx semantic-release --npmToken §", join("npm_", W36)),
    ("TF_TOKEN_app_terraform_io=§", join(of(WORD, 14), ".atlasv1.", of(WORD, 67))),
    ("ansible-playbook -e db_pass=§ site.yml", picked),
    ('chef: {"mysql": {"server_root_password": "§"}}', picked),
    ("puppet: mysql::server::root_password: '§'", picked),
    ("salt: mysql.pass: §", picked),
    ('vagrant: config.ssh.password = "§"', picked),
    ('packer: "ssh_password": "§"', picked),
    ("cloud-init:\nchpasswd:\n  list: |\n    root:§", picked),
    ("user-data: passwd: §", join("$6$", of(WORD, 8), "$", of(WORD + "./", 86))),
    ("kickstart: rootpw §", picked),
    ("preseed: d-i passwd/root-password password §", picked),
    # Dumps and debuggers
    ("'HTTP_AUTHORIZATION': 'Bearer §',", jwt),
    ("HTTP_X_API_KEY = '§'", W32),
    ("'SECRET_KEY': '§', 'DEBUG': True", of(SMALL + "!@#%^&*(-_=+)", 50)),
    ("environ({'HOME': '/root', 'DB_PASSWORD': '§'})", picked),
    ("os.environ = {'API_TOKEN': '§'}", W40),
    ("printenv\nHOME=/root\nMAIL_PASS=§", picked),
    ('docker inspect: "Env": ["POSTGRES_PASSWORD=§", "PATH=/bin"]', picked),
    ('"Cmd": ["--requirepass", "§"]', W24),
    ("/proc/1/environ: HOME=/root\\0REDIS_PASSWORD=§\\0", picked),
    ("ps aux | root 1 mysqld --password=§", picked),
    ("root 231 0.0 java -Ddb.password=§ -jar app.jar", picked),
    ("History: 412  export HF_TOKEN=§", join("hf_", of(WORD, 34))),
    ("  502  mysql -h db -u root -p§", picked),
    ('(gdb) p password\n$1 = 0x7f "§"', picked),
    ("(Pdb) p self.password\n'§'", picked),
    ("locals: {'user': 'bob', 'password': '§'}", picked),
    ('  File "a.py", line 3, in f\n    password = "§"', picked),
    ("ConnectionError: mysql://bob:§@db/shop refused", picked),
    ("requests.exceptions.ConnectionError: url: /v1?apiKey=§ (Caused by x)", W32),
    ("java.sql.SQLException: Access denied; url=jdbc:mysql://db/a?user=bob&password=§", picked),
    ("org.postgresql.Driver connect jdbc:postgresql://db/a?password=§&user=bob", picked),
    ("Properties{user=bob, password=§}", picked),
    ("DataSource[url=jdbc:x, username=sa, password=§]", picked),
    ("HikariConfig - password........................§", picked),
    ("props: db.user=sa, db.password=§, db.pool=3", picked),
    ("UserDto(name=bob, password=§, age=3)", picked),
    ("LoginRequest { Username = bob, Password = § }", picked),
    ("@{UserName=bob; Password=§}", picked),
    ("Password             : §", picked),
    ("PlainPassword   §", picked),
    ("SecretValueText : §", W40),
    ("sekurlsa: * Password : §", picked),
    ("* NTLM     : §", H32),
    ("Administrator:500:aad3b435b51404eeaad3b435b51404ee:§:::", H32),
    ("krb5: $krb5tgs$23$*svc$REALM$a*$§", of(HEX, 200)),
    ("hashcat: $2y$10$§", of(WORD + "./", 53)),
    ("pbkdf2_sha256$600000$§", join(of(WORD, 22), "$", b64(32))),
    ("shadow: bob:$y$j9T$§:19700::::::", join(of(WORD + "./", 22), "$", of(WORD + "./", 43))),
    # Settings of products
    ("wp-config: define('DB_PASSWORD','§');", picked),
    ("configuration.php: public $password = '§';", picked),
    ("public $secret = '§';", W16),
    ("settings.php: 'password' => '§', 'host' => 'db'", picked),
    ("env.php: 'crypt' => ['key' => '§']", H32),
    ("parameters.yml: mailer_password: §", picked),
    ("MAILER_DSN=smtp://bob:§@smtp.example.com:587", picked),
    ("DATABASE_URL=mysql://bob:§@127.0.0.1:3306/shop?serverVersion=8", picked),
    ('application.conf: play.http.secret.key="§"', W64),
    ('akka.ssl.key-store-password = "§"', picked),
    ("config/master.key\n§", H32),
    ("storage.yml: secret_access_key: §", of(BASE64, 40)),
    ('config/prod.secret.exs: secret_key_base: "§"', of(BASE64, 64)),
    ('web.config: <machineKey validationKey="§" />', of("0123456789ABCDEF", 128)),
    ('<add name="Main" connectionString="Data Source=.;User ID=sa;Password=§" />', picked),
    ("<UserPassword>§</UserPassword>", picked),
    ('<Value Name="ApiKey">§</Value>', W32),
    ('tomcat-users.xml: <user username="admin" password="§" roles="manager-gui"/>', picked),
    ('server.xml: keystorePass="§"', picked),
    ('<Resource name="jdbc/a" username="sa" password="§"/>', picked),
    ("standalone.xml: <security><user-name>sa</user-name><password>§</password></security>", picked),
    ('my.cnf: [mysqldump]\nuser=root\npassword="§"', picked),
    ('pgbouncer: "app" "§"', picked),
    ("pg_service.conf: [prod]\nhost=db\nuser=app\npassword=§", picked),
    ("postgresql: primary_conninfo = 'host=a user=r password=§'", picked),
    ("mongod.conf: keyFile; security.password: §", picked),
    ("redis.conf: masterauth §", picked),
    ("sentinel auth-pass main §", picked),
    ("rabbitmq.conf: default_pass = §", picked),
    ("kafka: ssl.truststore.password=§", picked),
    ("elasticsearch.yml: xpack.security.http.ssl.keystore.password: §", picked),
    ('kibana.yml: elasticsearch.password: "§"', picked),
    ('xpack.encryptedSavedObjects.encryptionKey: "§"', S32),
    ('logstash: output { elasticsearch { user => "a" password => "§" } }', picked),
    ('filebeat: output.elasticsearch.api_key: "§"', join(of(WEB, 20), ":", of(WEB, 22))),
    ('telegraf: token = "§"', b64(64)),
    ("prometheus: basic_auth: {username: a, password: §}", picked),
    ("grafana.ini: admin_password = §", picked),
    ("alertmanager: smtp_auth_password: §", picked),
    ("zabbix: DBPassword=§", picked),
    ('icinga: password = "§"', picked),
    ("nagios: $USER3$=§", picked),
    ("haproxy: stats auth admin:§", picked),
    ('traefik: users: "admin:$apr1$§"', join(of(WORD, 8), "$", of(WORD + "./", 22))),
    ("squid: cache_peer p parent 3128 0 login=bob:§", picked),
    ("postfix: [smtp.example.com]:587 bob:§", picked),
    ("dovecot: passdb password=§", picked),
    ("fetchmail: poll imap.example.com user bob pass §", picked),
    ("msmtp: password §", picked),
    ('mutt: set imap_pass="§"', picked),
    ("offlineimap: remotepass = §", picked),
    ("davfs2 secrets: https://dav.example.com bob §", picked),
    ("samba credentials: username=bob\npassword=§", picked),
    ('wpa: identity="bob"\n  password="§"', picked),
    ("hostapd: wpa_passphrase=§", picked),
    ("openvpn auth.txt: bob\n§", picked),
    ('ipsec.secrets: bob : EAP "§"', picked),
    ("chap-secrets: bob * § *", picked),
    ('ppp: "bob" * "§"', picked),
    ("ddclient: login=bob\npassword='§'", picked),
    ("duckdns: token=§", some_uuid),
    ('acme.sh: CF_Token="§"', of(WEB, 40)),
    ("certbot-dns: dns_cloudflare_api_token = §", of(WEB, 40)),
    ("rclone: pass = §", of(WEB, 30)),
    ('restic: RESTIC_PASSWORD="§"', picked),
    ("duplicity: export PASSPHRASE=§", picked),
    ('borgmatic: encryption_passphrase: "§"', picked),
    ("syncthing: <apikey>§</apikey>", W32),
    ('transmission: "rpc-password": "§"', picked),
    ('qbittorrent: WebUI\\Password_PBKDF2="@ByteArray(§)"', b64(60)),
    ("homeassistant: http_password: §", picked),
    ("zigbee2mqtt: mqtt: {user: a, password: §}", picked),
    ('esphome: ota: password: "§"', H32),
    ('esphome: api: encryption: key: "§"', b64(32)),
    ("tasmota: Password1 §", picked),
    ("frigate: rtsp://bob:§@10.0.0.8:554/stream", picked),
    ("octoprint: key: §", of("0123456789ABCDEF", 32)),
    ("discord: DISCORD_TOKEN = '§'", join("MTA", of(WORD, 23), ".", of(WEB, 6), ".", of(WEB, 38))),
    ("slack: signing_secret: §", H32),
    ("twilio: Client('AC0', '§')", H32),
    ("openai.api_key = '§'", join("sk-", W48)),
    ('AzureKeyCredential("§")', H32),
    ('BlobServiceClient(url, credential="§")', b64(64)),
    (
        "boto3.client('s3', aws_access_key_id='AKIAABCDEFGHIJKLMNOP', aws_secret_access_key='§')",
        of(BASE64, 40),
    ),
    ('stripe.api_key = "§"', join("sk_live_", W24)),
    ('sendgrid: new SendGridClient("§")', join("SG.", of(WEB, 22), ".", of(WEB, 43))),
    ("firebase.initializeApp({ apiKey: '§' })", join("AIza", of(WEB, 35))),
    ("algoliasearch('APP', '§')", H32),
    ("new Pusher({ key: 'a', secret: '§' })", S24),
    ("cloudinary.config({ api_secret: '§' })", of(WEB, 27)),
    ("nodemailer: auth: { user: 'a@b.c', pass: '§' }", picked),
    ("passport: clientSecret: '§',", W40),
    ("knex: connection: { user: 'a', password : '§' }", picked),
    ("mongoose.connect('mongodb://bob:§@db/a')", picked),
    ("sequelize: new Sequelize('db', 'bob', '§', {})", picked),
    ("redis.createClient({ password: '§' })", picked),
    ("paramiko: ssh.connect(host, username='bob', password='§')", picked),
    ("ftplib.FTP('h', 'bob', '§')", picked),
    ('smtp.login("bob@example.com", "§")', picked),
    ("imap.login('bob', '§')", picked),
    ("ldap.simple_bind_s('cn=a', '§')", picked),
    ("pymysql.connect('db', 'bob', '§', 'shop')", picked),
    ("cx_Oracle.connect('bob/§@db')", picked),
    ("hvac.Client(url=u, token='§')", join("hvs.", W24)),
    ("pyotp.TOTP('§')", of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 32)),
    ("bcrypt.hashpw(b'§', salt)", picked),
    ("page.fill('#password', '§')", picked),
    ("driver.find_element(By.ID, 'pw').send_keys('§')", picked),
    ("await page.type('input[name=password]', '§');", picked),
    # People
    ("Hi Bob, the VPN password is now §. Regards", picked),
    ("New password: §\nPlease do not share it.", picked),
    ("can you try bob@example.com / § on staging?", picked),
    ("u: bob p: §", picked),
    ("login bob, password §, then click on Export", picked),
    ("Use the test account (bob / §).", picked),
    ("pwd is § btw", picked),
    ("the token: §", W40),
    ("I rotated the key, it is § now", W40),
    ("key for the maps: §", join("AIza", of(WEB, 35))),
    ("guest wifi -> §", picked),
    ("Wifi: Attic / §", picked),
    ("Alarm code § for the cleaners", of(DIGITS, 4)),
    ("sms: Your Acme code is §. Don't share it.", of(DIGITS, 6)),
    ("<#> § is your login code", of(DIGITS, 6)),
    ("PIN § for the card", of(DIGITS, 4)),
    ("Passwort für den Server: §", picked),
    ("Zugangsdaten: bob / §", picked),
    ("Identifiant : bob\nMot de passe : §", picked),
    ("usuario: bob, contraseña: §", picked),
    ("utente bob password §", picked),
    ("login: bob hasło: §", picked),
    ("логин: bob пароль: §", picked),
    ("ユーザー名: bob パスワード: §", picked),
    ("用户名:bob 密码:§", picked),
    ("아이디: bob 비밀번호: §", picked),
    ("gebruiker: bob wachtwoord: §", picked),
    ("användare: bob lösenord: §", picked),
    ('{"username":"bob","passwd":"§"}', picked),
    ('{"userPassword":{"stringValue":"§"}}', picked),
    ('{"headers":[{"name":"authorization","value":"Bearer §"}]}', W40),
    ('{"request":{"cookies":[{"name":"session","value":"§"}]}}', W40),
    ('{"variables":[{"key":"api_token","value":"§"}]}', W40),
    ('{"body":"client_id=a&client_secret=§"}', W32),
    ('{"query":"mutation { login(email: \\"a@b.c\\", password: \\"§\\") { token } }"}', picked),
    ('{"jsonrpc":"2.0","method":"login","params":["bob","§"]}', picked),
    ('{"action":"fill","selector":"#password","value":"§"}', picked),
    ("https://bob:§@git.example.com/a/b.git", escaped(picked)),
    ("https://example.com/login?user=bob&pwd=§", picked),
    ("https://example.com/invite?token=§", W32),
    ("https://example.com/api?access_key=§", H32),
    ("https://example.com/unsubscribe?sig=§", of(WEB, 43)),
    ("https://example.com/cb#id_token=§", jwt),
    ("s3://AKIAABCDEFGHIJKLMNOP:§@bucket/a", of(WORD, 40)),
    ("sftp://bob:§@10.0.0.2/up", picked),
    ("amqps://bob:§@mq.example.com/vhost", picked),
    ("ldap://cn=admin:§@ldap.example.com", picked),
    ("SG9sYQ== Authorization: Basic §", pair("bob", picked)),
    ("apikey §", W32),
    ("X-Auth-Key: §", H40),
    ("X-Gitlab-Token: §", W24),
    ("X-Figma-Token: §", W40),
    ("Api-Token: §", W40),
    ("Private-Token: §", of(WEB, 20)),
    ("Authorization: Bot §", join("MTA", of(WORD, 23), ".", of(WEB, 6), ".", of(WEB, 38))),
    ("Authorization: GenieKey §", some_uuid),
    ("Set-Cookie: XSRF-TOKEN=§; Path=/", b64(40)),
    ("cookie: remember_me=§", W48),
    ("LOWERCASE_SECRET=§", of(LOWER, 24)),
    ("LICENSE_KEY=§", join(of(CAPITAL, 5), "-", of(CAPITAL, 5), "-", of(CAPITAL, 5), "-", of(CAPITAL, 5))),
    (
        "SERIAL: § (activation)",
        join(of(CAPITAL, 5), "-", of(CAPITAL, 5), "-", of(CAPITAL, 5), "-", of(CAPITAL, 5)),
    ),
]
"""What must go."""

_LIKE = re.compile(r"(?i)passw|passphrase|token|secret|api.?key|credential|auth(?!or)|cookie|\bkey\b")
LINES = 600


def lines_of_the_library() -> list[str]:
    """Lines of Python's own library that hold a word for a secret: what is in them is public."""
    library = Path(sysconfig.get_path("stdlib"))
    lines = {
        line.strip()
        for path in library.rglob("*.py")
        if not {"site-packages", "test", "tests", "idlelib"} & set(path.parts)
        for line in path.read_text(errors="replace").splitlines()
        if _LIKE.search(line) and 8 < len(line.strip()) < 200
    }
    return random.Random("library").sample(sorted(lines), LINES)


def _half(half: int) -> list[Labelled]:
    places = list(range(len(SECRETS)))
    random.Random("halves").shuffle(places)
    rows = []
    for place in places[half::2]:
        text, make = SECRETS[place]
        value = make(random.Random(f"incidents {place}"))
        rows.append(Labelled(text[:40], text.replace("§", value), value))
    return rows


INCIDENT_SETS: dict[str, tuple[list[Labelled], list[Labelled]]] = {
    name: (_half(half), [Labelled(line[:40], line, "") for line in lines_of_the_library()[half::2]])
    for half, name in enumerate(("incidents_shown", "incidents_held_back"))
}
"""Name of a half → texts with secrets, and harmless ones."""
