-- A statement of each kind of refusal that the other files have no statement for.
-- refused 42883: backends
SELECT pg_cancel_backend(NULL)
-- refused 42883: sleep
SELECT pg_sleep(0)
-- refused 0A000: patterns
SELECT 'a' SIMILAR TO p FROM (VALUES ('a')) t(p)
-- refused 0A000: patterns
SELECT 'a' LIKE p ESCAPE '#' FROM (VALUES ('a')) t(p)
-- refused 0A000: correlated counts
SELECT id FROM shop.r2 a WHERE EXISTS (SELECT count(*) FROM shop.r3 c WHERE c.k = a.k HAVING count(*) > 0) ORDER BY id
-- refused 0A000: quantified
SELECT id, id = ALL (SELECT k FROM shop.r3) FROM shop.r2 ORDER BY id
-- refused 0A000: quantified
SELECT id FROM shop.r2 WHERE (SELECT 1) NOT IN (SELECT k FROM shop.r3) ORDER BY id
-- refused 0A000: merged columns
SELECT * FROM (SELECT * FROM (VALUES (1, 2)) t(a, b)) x NATURAL FULL JOIN (SELECT * FROM (VALUES (1, 3)) t(a, c)) y
-- refused 0A000: order
SELECT a.id, a.k AS v FROM shop.r2 a JOIN shop.r3 c ON c.id = a.id ORDER BY v + 1
-- refused 0A000: catalog
SELECT relname, (SELECT n.nspname FROM pg_catalog.pg_namespace n WHERE n.oid = c.relnamespace) FROM pg_catalog.pg_class c WHERE relname = 'pg_class'
-- refused 0A000: explain
EXPLAIN (COSTS OFF, SETTINGS) SELECT 1
-- refused 42703: types
SELECT inet '10.0.0.1'
-- refused 2201B: regular expressions
SELECT regexp_replace('foobar', '(?=b)', '|')
-- refused 2201B: regular expressions
SELECT regexp_replace('abab', '(a)(b)\1', 'x')
-- refused 0A000: regular expressions
SELECT regexp_replace('foobar', 'o', 'x', 'x')
-- refused 0A000: regular expressions
SELECT regexp_replace('foobar', '[^f]', 'x', 'n')
