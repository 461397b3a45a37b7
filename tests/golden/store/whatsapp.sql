-- A store as the WhatsApp era's program left it. Never change this file.
CREATE TABLE messages (
    id          TEXT PRIMARY KEY,
    from_jid    TEXT NOT NULL,
    chat        TEXT NOT NULL,
    content     TEXT NOT NULL,
    timestamp   TEXT NOT NULL,
    is_voice    INTEGER DEFAULT 0,
    acked       INTEGER DEFAULT 0,
    wa_msg_id   TEXT DEFAULT ''
);
CREATE TABLE sessions (
    chat_jid   TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    updated_at TEXT NOT NULL
);
INSERT INTO messages VALUES ('3EB0A1', '34600111222@s.whatsapp.net', '1203@g.us', 'hola, ¿qué tal? 👋', '2025-11-02T09:15:00Z', 0, 1, '3EB0A1');
INSERT INTO messages VALUES ('3EB0A2', '34600111222@s.whatsapp.net', '1203@g.us', 'a voice note', '2025-11-02T09:16:30Z', 1, 1, '3EB0A2');
INSERT INTO messages VALUES ('3EB0A3', '34600333444@s.whatsapp.net', '1203@g.us', 'line one
line two; -- not SQL''', '2025-11-02T09:17:00Z', 0, 0, '');
INSERT INTO messages (id, from_jid, chat, content, timestamp) VALUES ('3EB0A4', '', '', '', '');
INSERT INTO messages VALUES ('3EB0A5', 'x', 'y', 'nulls where they may be', 't', NULL, NULL, NULL);
INSERT INTO sessions VALUES ('1203@g.us', '0b6f3c1e-6a1f-4a53-9d7e-0c5f2f9a7b11', '2025-11-02T09:18:00Z');
INSERT INTO sessions VALUES ('1204@g.us', '7d1c2f60-2222-4e3b-8a53-2b6f4f9a7b12', '2025-10-01T00:00:00Z');
