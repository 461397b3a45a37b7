-- A journal as revision 0006 left it: references had the names that Slack gives its ids.
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0006');
CREATE TABLE "channels" (channel TEXT NOT NULL PRIMARY KEY, newest_s REAL NOT NULL, floor_s REAL NOT NULL DEFAULT 0, gap_s REAL);
INSERT INTO "channels" VALUES('C1',1.70000000300000405316e+09,1699999000.0,1.7000000010000019074e+09);
INSERT INTO "channels" VALUES('D1',1.70000000900000095361e+09,0.0,NULL);
CREATE TABLE direct (home TEXT NOT NULL, item TEXT NOT NULL, channel TEXT NOT NULL, PRIMARY KEY (home, item));
CREATE TABLE entries (
    seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    channel TEXT NOT NULL,
    received_at TEXT NOT NULL,
    event TEXT,
    request TEXT
);
INSERT INTO "entries" VALUES(1,'message:C1:1700000001.000002','C1','2023-11-14T22:13:21+00:00','{"is_direct": false, "sent_at": 1700000001.000002, "order": "1700000001.000002", "kind": "message", "channel": "C1", "ts": "1700000001.000002", "user": "U1", "text": "é \"x\"", "thread_ts": "1699000000.000100", "files": [], "mentioned": true, "origin": "chat", "late": false, "stale": false, "job": "", "seen_ts": "", "handled": "no"}','{"kind":"prompt","text":"x","prefix":null}');
INSERT INTO "entries" VALUES(2,'edit:C1:1700000001.000002:1700000005.000006','C1','2023-11-14T22:13:25+00:00','{"is_direct": false, "sent_at": 1700000005.000006, "order": "1700000005.000006", "kind": "edit", "channel": "C1", "ts": "1700000001.000002", "user": "U1", "text": "y", "edited_ts": "1700000005.000006", "thread_ts": null}','{"kind":"prompt","text":"y","prefix":null}');
INSERT INTO "entries" VALUES(3,'delete:C1:1700000001.000002','C1','2023-11-14T22:13:26+00:00','{"is_direct": false, "sent_at": 1700000001.000002, "order": "1700000001.000002", "kind": "delete", "channel": "C1", "ts": "1700000001.000002", "user": "U1", "thread_ts": null}','{"kind":"none"}');
INSERT INTO "entries" VALUES(4,'click:D1:1700000007.000008:7.1','D1','2023-11-14T22:13:27+00:00','{"is_direct": true, "kind": "click", "channel": "D1", "user": "U1", "message_ts": "1700000007.000008", "action_id": "a", "value": "v", "action_ts": "7.1", "thread_ts": null, "user_name": "", "words": "", "picked": [], "origin": "chat"}','{"kind":"none"}');
INSERT INTO "entries" VALUES(5,'slash:C1:t','C1','2023-11-14T22:13:28+00:00','{"is_direct": false, "kind": "slash", "channel": "C1", "user": "U1", "command": "/butler", "text": "status", "trigger_id": "t"}','{"kind":"command","name":"status","argument":""}');
INSERT INTO "entries" VALUES(6,'message:D1:1700000009.000001','D1','2023-11-14T22:13:29+00:00','{"is_direct": true, "sent_at": 1700000009.000001, "order": "1700000009.000001", "kind": "message", "channel": "D1", "ts": "1700000009.000001", "user": "U1", "text": "shop: x", "thread_ts": null, "files": [], "mentioned": false, "origin": "chat", "late": false, "stale": false, "job": "", "seen_ts": "", "handled": "no"}','{"kind":"none"}');
INSERT INTO "entries" VALUES(7,'message:C1:1699999999.000001','C1','2023-11-14T22:13:19+00:00',NULL,NULL);
CREATE TABLE notes (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "notes" VALUES('schedule','{"jobs":{"shop/nightly":{"digest":"d","next":"2026-01-02T00:00:00Z","failures":0,"paused":"","begun":null,"awaited":"1700000001.000002","last":null,"last_ok":null}},"timers":[{"id":"t1","at":"2026-01-02T00:00:00Z","user":"U1","repo":"shop","channel":"C1","text":"say \"thread_ts\": x","thread_ts":"1700000001.000002"},{"id":"t2","at":"2026-01-03T00:00:00Z","user":"U1","repo":"shop","channel":"C1","text":"hi","thread_ts":null}]}');
CREATE TABLE "recent" (channel TEXT NOT NULL, ts TEXT NOT NULL, root_ts TEXT NOT NULL, user TEXT NOT NULL, taken INTEGER NOT NULL, sent_at REAL NOT NULL, PRIMARY KEY (channel, ts));
INSERT INTO "recent" VALUES('C1','1700000001.000002','1699000000.000100','U1',1,1.7000000010000019074e+09);
INSERT INTO "recent" VALUES('C1','1700000003.000004','1700000003.000004','U2',0,1.70000000300000405316e+09);
INSERT INTO "recent" VALUES('D1','1700000009.000001','1700000009.000001','U1',1,1.70000000900000095361e+09);
CREATE INDEX ix_entries_pending ON entries (channel, seq) WHERE event IS NOT NULL;
CREATE INDEX ix_recent_root ON recent (channel, root_ts, sent_at);
CREATE INDEX ix_recent_sent_at ON recent (channel, sent_at);
