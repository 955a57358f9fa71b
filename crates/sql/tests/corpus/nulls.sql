-- NULL, CASE, COALESCE, IN, ordering of NULL.
SELECT NULL
SELECT NULL IS NULL, 1 IS NULL, NULL IS NOT NULL
SELECT NULL = NULL, NULL <> NULL, 1 = NULL, NULL < 1
SELECT NULL AND true, NULL AND false, NULL OR true, NULL OR false, NOT NULL::boolean
SELECT true AND NULL, false AND NULL, true OR NULL
SELECT NULL + 1, NULL * 0, -NULL::int
SELECT 1 IN (1, 2), 3 IN (1, 2), 3 IN (1, NULL), 1 IN (1, NULL), NULL IN (1, 2)
SELECT 1 NOT IN (1, 2), 3 NOT IN (1, 2), 3 NOT IN (1, NULL), 1 NOT IN (1, NULL), NULL NOT IN (1)
SELECT coalesce(NULL, 1), coalesce(NULL, NULL, 'a'), coalesce(1, 2)
SELECT coalesce(NULL, NULL)
-- differs decimals
-- gives: = coalesce numeric|coalesce int8 ; > 1.0|3
SELECT coalesce(1, 2.5), coalesce(NULL::int, 3::bigint)
SELECT coalesce(1, 'a')
SELECT nullif(1, 1), nullif(1, 2), nullif('a', 'a')
SELECT nullif(1, 1.0)
SELECT greatest(NULL, 1), least(NULL, NULL::int), greatest(1, NULL, 3)
SELECT CASE WHEN NULL THEN 1 ELSE 2 END, CASE NULL WHEN NULL THEN 1 ELSE 2 END
SELECT CASE 1 WHEN 1 THEN 'a' WHEN 2 THEN 'b' END, CASE 3 WHEN 1 THEN 'a' END
SELECT CASE WHEN 1 > 2 THEN 1 END
SELECT CASE WHEN true THEN 1 ELSE 1 / 0 END
SELECT CASE WHEN qty <> 0 THEN 10 / qty END FROM shop.items WHERE id IN (1, 3, 6) ORDER BY id
SELECT CASE WHEN true THEN 'a' ELSE 1 END
-- differs decimals
-- gives: = case numeric ; > 1.5 ; > 2.0
SELECT CASE WHEN x > 1 THEN x ELSE 1.5 END FROM (VALUES (1), (2)) AS v(x) ORDER BY x
SELECT NULL IS DISTINCT FROM NULL, 1 IS DISTINCT FROM NULL, 1 IS NOT DISTINCT FROM 1
SELECT true IS TRUE, NULL IS TRUE, false IS NOT TRUE, NULL IS UNKNOWN, NULL IS NOT FALSE
SELECT x FROM (VALUES (2), (NULL), (1)) AS v(x) ORDER BY x
SELECT x FROM (VALUES (2), (NULL), (1)) AS v(x) ORDER BY x DESC
SELECT x FROM (VALUES (2), (NULL), (1)) AS v(x) ORDER BY x NULLS FIRST
SELECT x FROM (VALUES (2), (NULL), (1)) AS v(x) ORDER BY x DESC NULLS LAST
SELECT count(*), count(x), sum(x), avg(x), min(x), max(x) FROM (VALUES (2), (NULL), (1)) AS v(x)
SELECT count(x), sum(x), avg(x), min(x) FROM (VALUES (NULL::int)) AS v(x)
SELECT sum(x), count(*) FROM (VALUES (1)) AS v(x) WHERE x > 5
SELECT x, count(*) FROM (VALUES (1), (NULL), (NULL)) AS v(x) GROUP BY x ORDER BY x
SELECT DISTINCT x FROM (VALUES (1), (NULL), (NULL)) AS v(x) ORDER BY x
SELECT a.x FROM (VALUES (1), (NULL)) AS a(x) JOIN (VALUES (1), (NULL)) AS b(x) ON a.x = b.x
SELECT x FROM (VALUES (1), (NULL), (3)) AS v(x) WHERE x NOT IN (SELECT y FROM (VALUES (1), (NULL)) AS w(y))
SELECT x FROM (VALUES (1), (NULL), (3)) AS v(x) WHERE x NOT IN (SELECT y FROM (VALUES (1)) AS w(y))
SELECT x FROM (VALUES (1), (NULL), (3)) AS v(x) WHERE x IN (SELECT y FROM (VALUES (1), (NULL)) AS w(y))
SELECT x FROM (VALUES (1), (NULL)) AS v(x) WHERE NOT (x = 1)
SELECT x FROM (VALUES (1), (NULL)) AS v(x) WHERE x <> 2 OR x IS NULL ORDER BY x
SELECT id, name IS NULL, name = '' FROM shop.items WHERE id IN (1, 7, 8) ORDER BY id
SELECT id FROM shop.items WHERE name IS NULL
SELECT id FROM shop.items WHERE qty IS NOT NULL ORDER BY qty, id
SELECT id FROM shop.items ORDER BY qty, id
SELECT id FROM shop.items ORDER BY qty DESC, id
SELECT id FROM shop.items WHERE qty <> 10 ORDER BY id
SELECT id FROM shop.items WHERE NOT sold ORDER BY id
SELECT id FROM shop.items WHERE sold IS NOT TRUE ORDER BY id
SELECT id FROM shop.items WHERE qty NOT IN (3, 7) ORDER BY id
SELECT id FROM shop.items WHERE coalesce(qty, 0) = 0 ORDER BY id
SELECT bool_and(sold), bool_or(sold), every(sold) FROM shop.items
SELECT count(DISTINCT qty), count(DISTINCT kind) FROM shop.items
SELECT array_agg(x ORDER BY x) FROM (VALUES (2), (NULL), (1)) AS v(x)
SELECT array_agg(x) FROM (VALUES (1)) AS v(x) WHERE x > 5
-- refused 0A000: rows
SELECT row(1, NULL) IS NULL, row(NULL, NULL) IS NULL
SELECT (1, 2) = (1, 2), (1, 2) < (1, 3)
SELECT (1, NULL) = (1, 2), (1, NULL) = (2, 2)
SELECT 1 = ANY (ARRAY[1, 2]), 3 = ANY (ARRAY[1, NULL]), 1 = ALL (ARRAY[1, 1]), 1 <> ALL (ARRAY[2, 3])
SELECT 5 > ANY (ARRAY[1, 9]), 5 > ALL (ARRAY[1, 9])
-- refused 42883: functions
SELECT num_nulls(1, NULL, 2), num_nonnulls(1, NULL)
-- refused 42883: constants
SELECT true > false, true = 't', NOT true
SELECT true::int + 1
SELECT NULL::text || 'a', concat(NULL::text, 'a')
