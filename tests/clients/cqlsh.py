"""cqlsh: a table, service levels, and DESCRIBE."""

import subprocess

from _server import PASSWORD, Server

SCRIPT = """
CREATE KEYSPACE app WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
USE app;
CREATE TABLE people (id int PRIMARY KEY, name text);
INSERT INTO people (id, name) VALUES (1, 'Ada');
INSERT INTO people (id, name) VALUES (2, 'Grace');
SELECT * FROM people WHERE id IN (1, 2);
CREATE SERVICE LEVEL olap WITH shares = 100;
LIST ALL SERVICE LEVELS;
CREATE TYPE place (street text, number int);
CREATE TABLE homes (id int PRIMARY KEY, home frozen<place>);
INSERT INTO homes (id, home) VALUES (1, {street: 'Lane', number: 9});
SELECT home FROM homes;
DESCRIBE TYPE place;
DESCRIBE TABLE people;
DESCRIBE KEYSPACES;
"""

EXPECTED = [
    " id | name",
    "  1 |   Ada",
    "  2 | Grace",
    "percentage of all service level shares",
    "{street: 'Lane', number: 9}",
    "CREATE TYPE app.place (",
    "CREATE TABLE app.people (",
    "id int PRIMARY KEY",
    "system_schema",
]


def main():
    with Server() as server:
        command = ["cqlsh", "--no-color", "-u", "admin", "-p", PASSWORD, "--request-timeout", "60"]
        command += ["--connect-timeout", "60", server.host, str(server.port)]
        done = subprocess.run(command, input=SCRIPT, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        for words in EXPECTED:
            assert words in done.stdout, f"{words!r} is missing in:\n{done.stdout}\n{done.stderr}"
        assert "Exception" not in done.stderr and "Error" not in done.stderr, done.stderr


if __name__ == "__main__":
    main()
