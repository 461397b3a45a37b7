-- A journal as revision 0005 left it: ids were times, orders and kinds of conversations at once.
CREATE TABLE entries (
    seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    channel TEXT NOT NULL,
    received_at TEXT NOT NULL,
    event TEXT,
    request TEXT
);
CREATE INDEX ix_entries_pending ON entries (channel, seq) WHERE event IS NOT NULL;
CREATE TABLE channels (
    channel TEXT NOT NULL PRIMARY KEY,
    newest_ts TEXT NOT NULL,
    floor_ts TEXT NOT NULL DEFAULT '',
    gap_ts TEXT
);
CREATE TABLE recent (
    channel TEXT NOT NULL,
    ts TEXT NOT NULL,
    root_ts TEXT NOT NULL,
    user TEXT NOT NULL,
    taken INTEGER NOT NULL,
    PRIMARY KEY (channel, ts)
);
CREATE INDEX ix_recent_root ON recent (channel, root_ts, ts);
CREATE TABLE notes (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE direct (home TEXT NOT NULL, item TEXT NOT NULL, channel TEXT NOT NULL, PRIMARY KEY (home, item));
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO alembic_version VALUES ('0005');
INSERT INTO channels VALUES ('C1', '1700000003.000004', '1699999000.000000', '1700000001.000002');
INSERT INTO channels VALUES ('D1', '1700000009.000001', '', NULL);
INSERT INTO recent VALUES ('C1', '1700000001.000002', '1699000000.000100', 'U1', 1);
INSERT INTO recent VALUES ('C1', '1700000003.000004', '1700000003.000004', 'U2', 0);
INSERT INTO recent VALUES ('D1', '1700000009.000001', '1700000009.000001', 'U1', 1);
INSERT INTO entries VALUES (1, 'message:C1:1700000001.000002', 'C1', '2023-11-14T22:13:21+00:00',
    '{"kind":"message","channel":"C1","ts":"1700000001.000002","user":"U1","text":"é \"x\"","thread_ts":"1699000000.000100","files":[],"mentioned":true,"origin":"slack","late":false,"stale":false,"job":"","seen_ts":"","handled":"no"}',
    '{"kind":"prompt","text":"x","prefix":null}');
INSERT INTO entries VALUES (2, 'edit:C1:1700000001.000002:1700000005.000006', 'C1', '2023-11-14T22:13:25+00:00',
    '{"kind":"edit","channel":"C1","ts":"1700000001.000002","user":"U1","text":"y","edited_ts":"1700000005.000006","thread_ts":null}',
    '{"kind":"prompt","text":"y","prefix":null}');
INSERT INTO entries VALUES (3, 'delete:C1:1700000001.000002', 'C1', '2023-11-14T22:13:26+00:00',
    '{"kind":"delete","channel":"C1","ts":"1700000001.000002","user":"U1","thread_ts":null}', '{"kind":"none"}');
INSERT INTO entries VALUES (4, 'click:D1:1700000007.000008:7.1', 'D1', '2023-11-14T22:13:27+00:00',
    '{"kind":"click","channel":"D1","user":"U1","message_ts":"1700000007.000008","action_id":"a","value":"v","action_ts":"7.1","thread_ts":null,"user_name":"","words":"","picked":[],"origin":"slack"}',
    '{"kind":"none"}');
INSERT INTO entries VALUES (5, 'slash:C1:t', 'C1', '2023-11-14T22:13:28+00:00',
    '{"kind":"slash","channel":"C1","user":"U1","command":"/butler","text":"status","trigger_id":"t"}',
    '{"kind":"command","name":"status","argument":""}');
INSERT INTO entries VALUES (6, 'message:D1:1700000009.000001', 'D1', '2023-11-14T22:13:29+00:00',
    '{"kind":"message","channel":"D1","ts":"1700000009.000001","user":"U1","text":"shop: x","thread_ts":null,"files":[],"mentioned":false,"origin":"slack","late":false,"stale":false,"job":"","seen_ts":"","handled":"no"}',
    '{"kind":"none"}');
INSERT INTO entries VALUES (7, 'message:C1:1699999999.000001', 'C1', '2023-11-14T22:13:19+00:00', NULL, NULL);
