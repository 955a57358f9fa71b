SELECT '\x41'::bytea, bytea '\x4142', 'abc'::bytea
SELECT v FROM (VALUES (1, '\x41'::bytea), (2, '\x00ff'::bytea), (3, '\x5c783431'::bytea)) t(n, v) ORDER BY v
SELECT n FROM (VALUES (1, '\x41'::bytea), (2, '\x00ff'::bytea), (3, '\x5c783431'::bytea)) t(n, v) WHERE v = '\x41'
SELECT n FROM (VALUES (1, '\x41'::bytea), (2, '\x00ff'::bytea), (3, '\x5c783431'::bytea)) t(n, v) WHERE '\x41' = v
SELECT n FROM (VALUES (1, '\x41'::bytea), (2, '\x00ff'::bytea), (3, '\x5c783431'::bytea)) t(n, v) WHERE v = 'A'
SELECT n FROM (VALUES (1, '\x41'::bytea), (2, '\x00ff'::bytea), (3, '\x5c783431'::bytea)) t(n, v) WHERE v <> '\x41' ORDER BY n
SELECT n FROM (VALUES (1, '\x41'::bytea), (2, '\x00ff'::bytea), (3, '\x5c783431'::bytea)) t(n, v) WHERE v > '\x00' ORDER BY n
SELECT n FROM (VALUES (1, '\x41'::bytea), (2, '\x00ff'::bytea), (3, '\x5c783431'::bytea)) t(n, v) WHERE v IN ('\x41', '\x00ff') ORDER BY n
SELECT n FROM (VALUES (1, '\x41'::bytea), (2, '\x00ff'::bytea), (3, '\x5c783431'::bytea)) t(n, v) WHERE v BETWEEN '\x00' AND '\x50' ORDER BY n
SELECT CASE v WHEN '\x41' THEN 1 ELSE 0 END FROM (VALUES ('\x41'::bytea)) t(v)
SELECT CASE WHEN v = '\x41' THEN '\x01' ELSE v END FROM (VALUES ('\x41'::bytea)) t(v)
-- refused 42883: bytea
SELECT coalesce(v, '\x00') FROM (VALUES ('\x41'::bytea), (NULL)) t(v)
SELECT nullif(v, '\x41') FROM (VALUES ('\x41'::bytea)) t(v)
SELECT greatest(v, '\x42'), least(v, '\x42') FROM (VALUES ('\x41'::bytea)) t(v)
SELECT coalesce(v, '\x00'::bytea) FROM (VALUES ('\x41'::bytea), (NULL)) t(v)
SELECT v || '\x42' FROM (VALUES ('\x41'::bytea)) t(v)
SELECT v || v FROM (VALUES ('\x41'::bytea)) t(v)
SELECT length(v) FROM (VALUES ('\xc3a9'::bytea), ('\xff00'::bytea), (''::bytea), (NULL)) t(v)
SELECT encode(v, 'hex'), md5(v) FROM (VALUES ('\xc3a9'::bytea)) t(v)
SELECT count(DISTINCT v) FROM (VALUES ('\xc3a9'::bytea), ('\xff00'::bytea)) t(v) WHERE v > '\xc4'
SELECT v FROM (VALUES ('\x41'::bytea)) t(v) UNION ALL SELECT '\x42' ORDER BY v
SELECT v::text FROM (VALUES ('\x41'::bytea)) t(v)
SELECT v = t FROM (VALUES ('\x41'::bytea, 'A'::text)) s(v, t)
SELECT '\x4'::bytea
-- refused 0A000: bytea
SELECT n FROM (VALUES (1, '\x41'::bytea)) t(n, v) WHERE v LIKE 'A%'
-- refused 0A000: bytea
SELECT encode(v, 'base64') FROM (VALUES ('\x41'::bytea)) t(v)
-- refused 0A000: bytea
SELECT string_agg(v, '\x00') FROM (VALUES ('\x41'::bytea)) t(v)
-- refused 42883: bytea
SELECT octet_length(v) FROM (VALUES ('\x41'::bytea)) t(v)
-- refused 42883: bytea
SELECT substr(v, 1, 1) FROM (VALUES ('\x4142'::bytea)) t(v)
-- refused 0A000: bytea
SELECT overlay(v placing '\x42' from 1) FROM (VALUES ('\x41'::bytea)) t(v)
