-- A store as revision 0013 left it, with a row of everything that names a message.
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0013');
CREATE TABLE approvals (
	id TEXT NOT NULL, 
	turn_id TEXT NOT NULL, 
	conversation TEXT NOT NULL, 
	tool TEXT NOT NULL, 
	action_json TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	state TEXT NOT NULL, 
	requested_at TEXT NOT NULL, 
	expires_at TEXT NOT NULL, 
	decided_by TEXT, 
	decided_at TEXT, 
	reason TEXT, 
	message_op_id TEXT, 
	needed INTEGER DEFAULT 1 NOT NULL, 
	votes TEXT DEFAULT '' NOT NULL, 
	for_session INTEGER DEFAULT 0 NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(turn_id) REFERENCES turns (id) DEFERRABLE INITIALLY DEFERRED
);
CREATE TABLE attachments (
	message_id TEXT NOT NULL, 
	file_id TEXT NOT NULL, 
	position INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	mimetype TEXT NOT NULL, 
	size_bytes INTEGER NOT NULL, 
	is_voice INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	path TEXT NOT NULL, 
	transcript TEXT NOT NULL, 
	PRIMARY KEY (message_id, file_id)
);
CREATE TABLE errands (
	id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	argument TEXT NOT NULL, 
	conversation TEXT NOT NULL, 
	thread_ts TEXT, 
	user_id TEXT NOT NULL, 
	only_for TEXT NOT NULL, 
	attempts INTEGER NOT NULL, 
	created_at TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "errands" VALUES('C1:1700000005.000001','undo','','C1:1700000001.000002',NULL,'U1','',0,'2026-01-01T00:00:00.000000+00:00');
CREATE TABLE expenses (
	seq INTEGER NOT NULL, 
	purpose TEXT NOT NULL, 
	conversation TEXT NOT NULL, 
	model TEXT NOT NULL, 
	input_tokens INTEGER NOT NULL, 
	output_tokens INTEGER NOT NULL, 
	cost_usd FLOAT, 
	at TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
CREATE TABLE facts (
	scope TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	channel_id TEXT NOT NULL, 
	thread_ts TEXT NOT NULL, 
	updated_at TEXT NOT NULL, 
	PRIMARY KEY (scope, "key")
);
INSERT INTO "facts" VALUES('repo','port','80','C1','1700000001.000002','2026-01-01T00:00:00.000000+00:00');
CREATE TABLE inbox (
	"key" TEXT NOT NULL, 
	seq INTEGER NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE memory_changes (
	seq INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	conversation TEXT NOT NULL, 
	channel_id TEXT NOT NULL, 
	thread_ts TEXT NOT NULL, 
	user_id TEXT NOT NULL, 
	changes TEXT NOT NULL, 
	state TEXT NOT NULL, 
	message_op_id TEXT, 
	created_at TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "memory_changes" VALUES(1,'m1','C1:1700000001.000002','C1','1700000001.000002','U1','[]','proposed',NULL,'2026-01-01T00:00:00.000000+00:00');
CREATE TABLE memory_lines (
	line TEXT NOT NULL, 
	channel_id TEXT NOT NULL, 
	thread_ts TEXT NOT NULL, 
	added_at TEXT NOT NULL, 
	PRIMARY KEY (line)
);
INSERT INTO "memory_lines" VALUES('- likes tea','C1','1700000001.000002','2026-01-01T00:00:00.000000+00:00');
CREATE TABLE memory_reviews (
	conversation TEXT NOT NULL, 
	up_to TEXT NOT NULL, 
	PRIMARY KEY (conversation)
);
CREATE TABLE messages (
	id TEXT, 
	from_id TEXT NOT NULL, 
	channel_id TEXT NOT NULL, 
	content TEXT NOT NULL, 
	timestamp TEXT NOT NULL, 
	is_voice INTEGER DEFAULT 0, 
	acked INTEGER DEFAULT 0, 
	platform_msg_id TEXT DEFAULT '', 
	thread_ts TEXT DEFAULT '' NOT NULL, 
	turn_id TEXT, 
	agent TEXT, 
	late INTEGER DEFAULT 0 NOT NULL, 
	"order" TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "messages" VALUES('C1:1700000001.000002','U1','C1','work','2026-01-01T00:00:00.000000+00:00',0,0,'1700000001.000002','1700000001.000002','t1',NULL,0,'1700000001.000002');
CREATE TABLE outbox (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	op_id TEXT NOT NULL, 
	turn_id TEXT, 
	conversation TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	payload TEXT NOT NULL, 
	target_op_id TEXT, 
	state TEXT NOT NULL, 
	ts TEXT, 
	code TEXT, 
	created_at TEXT NOT NULL, 
	FOREIGN KEY(turn_id) REFERENCES turns (id) DEFERRABLE INITIALLY DEFERRED
);
INSERT INTO "outbox" VALUES(1,'card','t1','C1:1700000001.000002','post','{"kind":"post","message":{"markdown":"may I?","buttons":[{"label":"Allow","action":"codebutler.allow","value":"a1"}]},"thread_ts":"1700000001.000002","only_for":"","mention":"","in_place":false,"value":"answer","outdated":false}',NULL,'posted','1700000006.000001',NULL,'2026-01-01T00:00:00.000000+00:00');
INSERT INTO "outbox" VALUES(2,'plain','t1','C1:1700000001.000002','post','{"kind":"post","message":{"markdown":"quotes \"thread_ts\": stay"},"thread_ts":null,"only_for":"","mention":"","in_place":false,"value":"answer","outdated":false}',NULL,'pending',NULL,NULL,'2026-01-01T00:00:00.000000+00:00');
INSERT INTO "outbox" VALUES(3,'edit','t1','C1:1700000001.000002','update','{"kind":"update","target_ts":"1700000006.000001","message":{"markdown":"decided"},"value":"progress"}',NULL,'pending',NULL,NULL,'2026-01-01T00:00:00.000000+00:00');
INSERT INTO "outbox" VALUES(4,'later','t1','C1:1700000001.000002','update','{"kind":"update","target_ts":"","message":{"markdown":"edited"},"value":"progress"}','plain','pending',NULL,NULL,'2026-01-01T00:00:00.000000+00:00');
INSERT INTO "outbox" VALUES(5,'mark','t1','C1:1700000001.000002','react','{"kind":"react","target_ts":"1700000001.000002","name":"eyes","remove":false,"value":"sign"}',NULL,'pending',NULL,NULL,'2026-01-01T00:00:00.000000+00:00');
INSERT INTO "outbox" VALUES(6,'file','t1','C1:1700000001.000002','upload','{"kind":"upload","filename":"a.txt","content":"YWJj","title":"","comment":"","thread_ts":"1700000001.000002","value":"answer"}',NULL,'pending',NULL,NULL,'2026-01-01T00:00:00.000000+00:00');
INSERT INTO "outbox" VALUES(7,'sent','t1','C1:1700000001.000002','upload','',NULL,'posted','F1',NULL,'2026-01-01T00:00:00.000000+00:00');
INSERT INTO "outbox" VALUES(8,'ended','t1','C1:1700000001.000002','ended','{"type":"turn_ended","op_id":"ended","thread_ts":"1700000001.000002","messages":["1700000001.000002"],"outcome":"done"}',NULL,'pending',NULL,NULL,'2026-01-01T00:00:00.000000+00:00');
CREATE TABLE sessions (
	channel_id TEXT, 
	session_id TEXT NOT NULL, 
	updated_at TEXT NOT NULL, 
	total_cost_usd FLOAT DEFAULT 0 NOT NULL, 
	PRIMARY KEY (channel_id)
);
CREATE TABLE threads (
	conversation TEXT NOT NULL, 
	agent TEXT NOT NULL, 
	channel_id TEXT NOT NULL, 
	thread_ts TEXT NOT NULL, 
	session_id TEXT NOT NULL, 
	total_cost_usd FLOAT NOT NULL, 
	updated_at TEXT NOT NULL, 
	PRIMARY KEY (conversation, agent)
);
INSERT INTO "threads" VALUES('C1:1700000001.000002','claude','C1','1700000001.000002','s1',0.5,'2026-01-01T00:00:00.000000+00:00');
CREATE TABLE turns (
	seq INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	conversation TEXT NOT NULL, 
	channel_id TEXT NOT NULL, 
	thread_ts TEXT NOT NULL, 
	agent TEXT NOT NULL, 
	state TEXT NOT NULL, 
	not_before TEXT NOT NULL, 
	created_at TEXT NOT NULL, 
	started_at TEXT, 
	finished_at TEXT, 
	session_id TEXT, 
	reason TEXT, 
	result TEXT, 
	user_id TEXT NOT NULL, 
	input_tokens INTEGER NOT NULL, 
	output_tokens INTEGER NOT NULL, 
	cost_usd FLOAT, 
	agent_turns INTEGER NOT NULL, 
	progress_op_id TEXT, 
	attempts INTEGER DEFAULT 0 NOT NULL, 
	tree_before TEXT, 
	tree_after TEXT, 
	worked_s FLOAT DEFAULT 0 NOT NULL, 
	job TEXT DEFAULT '' NOT NULL, 
	"plan" TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "turns" VALUES(1,'t1','C1:1700000001.000002','C1','1700000001.000002','claude','waiting','','2026-01-01T00:00:00.000000+00:00',NULL,NULL,NULL,NULL,NULL,'U1',0,0,NULL,0,NULL,0,NULL,NULL,0.0,'','');
CREATE INDEX ix_expenses_at ON expenses (at);
CREATE UNIQUE INDEX ix_memory_changes_id ON memory_changes (id);
CREATE INDEX ix_messages_turn_id ON messages (turn_id);
CREATE INDEX ix_threads_channel_id ON threads (channel_id, updated_at);
CREATE INDEX ix_turns_conversation ON turns (conversation, seq);
CREATE UNIQUE INDEX ix_turns_id ON turns (id);
CREATE INDEX ix_turns_started_at ON turns (started_at);
CREATE INDEX ix_turns_state ON turns (state, seq);
CREATE INDEX ix_approvals_conversation ON approvals (conversation);
CREATE INDEX ix_approvals_message_op_id ON approvals (message_op_id);
CREATE INDEX ix_approvals_state ON approvals (state, requested_at);
CREATE INDEX ix_approvals_turn_id ON approvals (turn_id);
CREATE UNIQUE INDEX ix_outbox_op_id ON outbox (op_id);
CREATE INDEX ix_outbox_state ON outbox (state, seq);
CREATE INDEX ix_outbox_target_op_id ON outbox (target_op_id);
CREATE INDEX ix_outbox_turn_id ON outbox (turn_id, seq);
