CREATE TABLE access_tokens (
    id TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0011');
CREATE TABLE allocations (
    id TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (id)
)
 WITHOUT ROWID
;
CREATE TABLE applications (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name)
)
 WITHOUT ROWID
;
CREATE TABLE attempts (
    session INTEGER NOT NULL,
    task INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    errors INTEGER NOT NULL,
    PRIMARY KEY (session, task),
    FOREIGN KEY(session, task) REFERENCES tasks (session, task)
)
 WITHOUT ROWID
;
CREATE TABLE capacity (
    number INTEGER NOT NULL,
    cards FLOAT NOT NULL,
    cores FLOAT NOT NULL,
    memory_bytes INTEGER NOT NULL,
    started_at FLOAT NOT NULL,
    ended_at FLOAT NOT NULL,
    PRIMARY KEY (number)
);
CREATE TABLE claims (
    session INTEGER NOT NULL,
    task INTEGER NOT NULL,
    claim INTEGER NOT NULL,
    executor TEXT NOT NULL,
    at FLOAT NOT NULL,
    PRIMARY KEY (session, task, claim),
    FOREIGN KEY(session, task) REFERENCES tasks (session, task)
)
 WITHOUT ROWID
;
CREATE TABLE events (
    number INTEGER NOT NULL,
    at FLOAT NOT NULL,
    kind TEXT NOT NULL,
    session TEXT,
    code INTEGER,
    message TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (number)
);
CREATE TABLE executors (
    executor TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (executor)
)
 WITHOUT ROWID
;
CREATE TABLE gangs (
    "key" TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY ("key")
);
CREATE TABLE history (
    number INTEGER NOT NULL,
    session TEXT NOT NULL,
    owner TEXT NOT NULL,
    queue TEXT NOT NULL,
    application TEXT NOT NULL,
    resreq TEXT NOT NULL,
    created_at FLOAT NOT NULL,
    asked_at FLOAT,
    started_at FLOAT,
    ended_at FLOAT,
    state TEXT NOT NULL,
    succeed INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    PRIMARY KEY (number)
);
CREATE TABLE nodes (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name)
)
 WITHOUT ROWID
;
CREATE TABLE nominations (
    uid TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (uid)
)
 WITHOUT ROWID
;
CREATE TABLE notices (
    id TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE payloads (
    id INTEGER NOT NULL,
    session INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE queues (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name)
)
 WITHOUT ROWID
;
CREATE TABLE quotas (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name)
)
 WITHOUT ROWID
;
CREATE TABLE results (
    session INTEGER NOT NULL,
    task INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    state TEXT NOT NULL,
    code INTEGER NOT NULL,
    output BLOB,
    message TEXT NOT NULL,
    executor TEXT,
    started_at FLOAT,
    ended_at FLOAT NOT NULL, payload INTEGER,
    PRIMARY KEY (session, task),
    FOREIGN KEY(session, task) REFERENCES tasks (session, task)
)
 WITHOUT ROWID
;
CREATE TABLE sessions (
    id TEXT NOT NULL,
    number INTEGER NOT NULL,
    value TEXT NOT NULL,
    common_data BLOB,
    PRIMARY KEY (number),
    UNIQUE (id)
);
CREATE TABLE stays (
    number INTEGER NOT NULL,
    holder TEXT NOT NULL,
    session INTEGER,
    owner TEXT NOT NULL,
    queue TEXT NOT NULL,
    application TEXT NOT NULL,
    node TEXT NOT NULL,
    gpus TEXT NOT NULL,
    cards FLOAT NOT NULL,
    cores FLOAT NOT NULL,
    memory_bytes INTEGER NOT NULL,
    started_at FLOAT NOT NULL,
    ended_at FLOAT,
    memory_peak_bytes INTEGER,
    PRIMARY KEY (number)
);
CREATE TABLE store (
    id INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    last_event INTEGER NOT NULL, commits INTEGER DEFAULT 0 NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT one_row CHECK (id = 1)
);
INSERT INTO "store" VALUES(1,0,0,0);
CREATE TABLE submissions (
    session INTEGER NOT NULL,
    submission INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    created_at FLOAT NOT NULL,
    shared BLOB, payload INTEGER,
    PRIMARY KEY (session, submission),
    FOREIGN KEY(session) REFERENCES sessions (number)
)
 WITHOUT ROWID
;
CREATE TABLE tasks (
    session INTEGER NOT NULL,
    task INTEGER NOT NULL,
    submission INTEGER NOT NULL,
    input BLOB NOT NULL, payload INTEGER,
    PRIMARY KEY (session, task),
    FOREIGN KEY(session, submission) REFERENCES submissions (session, submission)
)
 WITHOUT ROWID
;
CREATE TABLE waits (
    session TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (session)
);
CREATE UNIQUE INDEX submission_keys ON submissions (session, "key") WHERE key <> '';
CREATE UNIQUE INDEX result_order ON results (session, sequence);
CREATE INDEX session_events ON events (session, number);
CREATE INDEX session_payloads ON payloads (session);
CREATE INDEX evictions ON events (session, number) WHERE kind = 'executor.evicted';
CREATE INDEX history_ends ON history (ended_at);
CREATE INDEX session_stays ON stays (session);
CREATE INDEX stay_ends ON stays (ended_at);
