-- Types of results, and of what is compared and combined.
SELECT 1 AS a, 1::bigint AS b, 1::smallint AS c, 1.0 AS d, 1::float8 AS e, 1::real AS f, true AS g
SELECT 1 + 1::bigint, 1 + 1.0, 1 + 1::float8, 1.0 + 1::float8, 1::real + 1::float8
SELECT 1::smallint * 2::smallint, 1::smallint * 2, 1 * 2::bigint
-- differs quotient
-- gives: = count int8|sum int8|sum numeric|sum numeric|sum float8|avg numeric|avg numeric|avg float8 ; > 1|1|1|1.0|1|1.0000000000000000|1.0000000000000000|1
SELECT count(*), sum(1), sum(1::bigint), sum(1.0), sum(1::float8), avg(1), avg(1.0), avg(1::float8)
SELECT max(1), max(1::bigint), max(1.0), max('a'), max(true::int), min(date '2024-01-01')
SELECT length('a'), position('a' IN 'a'), ascii('a'), strpos('a', 'a')
SELECT row_number() OVER (), rank() OVER (), dense_rank() OVER ()
SELECT CASE WHEN true THEN 1 ELSE 2::bigint END, CASE WHEN true THEN 1::smallint ELSE 2 END
SELECT coalesce(1, 2::bigint), coalesce(1::smallint, 2), greatest(1, 2::bigint)
SELECT CASE WHEN false THEN 1 ELSE 2::float8 END, coalesce(NULL, 1::float8, 2)
SELECT 1 UNION ALL SELECT 2::bigint ORDER BY 1
SELECT 1::smallint UNION ALL SELECT 2 ORDER BY 1
SELECT 1 UNION ALL SELECT 2::float8 ORDER BY 1
SELECT x FROM (VALUES (1), (2::bigint)) AS v(x) ORDER BY x
SELECT x FROM (VALUES (1), (2::float8)) AS v(x) ORDER BY x
-- differs bigint
-- gives: = x int8 ; > 1 ; > 2
SELECT x FROM (VALUES (1::smallint), (2)) AS v(x) ORDER BY x
-- differs decimals
-- gives: = array _int8|array _numeric|array _float8 ; > {1,2}|{1.0,2.5}|{1,2}
SELECT ARRAY[1, 2::bigint], ARRAY[1, 2.5], ARRAY[1, 2::float8]
SELECT abs(1), abs(1::bigint), abs(1.5), abs(1::float8), abs(1::smallint)
SELECT round(1.5), round(1.5::float8), floor(1.5), ceil(1.5::float8), trunc(1.5)
SELECT 5 / 2, 5 / 2.0::float8, 5::bigint / 2, 5::smallint / 2::smallint
SELECT 5 % 2, 5::bigint % 2
SELECT id, qty, big, small, ratio, weight, sold, at, day, name, price FROM shop.items WHERE id = 1
SELECT id + qty, id + big, id + small, qty + ratio, qty + weight, small + small FROM shop.items WHERE id = 2
SELECT qty * price, big * price, ratio * price FROM shop.items WHERE id = 2
SELECT qty = small, big = qty, price = qty, ratio = qty FROM shop.items WHERE id = 2
SELECT sum(qty) + 1, sum(small) * 2, count(*) + 1, avg(qty) > 1 FROM shop.items WHERE id < 4
SELECT sum(qty) / 2, sum(qty) / 2.0::float8, max(qty) / 2 FROM shop.items WHERE id < 4
SELECT (SELECT 1), (SELECT 1::bigint), (SELECT max(qty) FROM shop.items)
SELECT x, x + 1, x * 2.0::float8 FROM (SELECT 1 AS x UNION SELECT 2) AS t ORDER BY x
SELECT x + y FROM (SELECT 1 AS x, 2 AS y) AS t
WITH t AS (SELECT 1 AS x) SELECT x + 1, x::bigint + 1 FROM t
-- differs quotient
-- gives: = sum int8|avg numeric ; > 1|1.0000000000000000 ; > 3|1.5000000000000000
SELECT sum(x) OVER (ORDER BY x), avg(x) OVER (ORDER BY x) FROM (SELECT 1 AS x UNION SELECT 2) AS t ORDER BY 1
SELECT CASE WHEN x = 1 THEN 'one' ELSE 'more' END FROM (VALUES (1), (2)) AS v(x) ORDER BY x
SELECT x FROM (VALUES (1), (2)) AS v(x) WHERE x = '1'
SELECT x FROM (VALUES (1), (2)) AS v(x) WHERE x IN ('1', '3')
SELECT x FROM (VALUES (1), (2)) AS v(x) WHERE x BETWEEN '2' AND '3'
-- differs decimals
-- gives: = x numeric ; > 2.0
SELECT x FROM (VALUES (1.5), (2)) AS v(x) WHERE x = '2'
SELECT x FROM (VALUES (date '2024-01-01')) AS v(x) WHERE x = '2024-01-01'
SELECT x FROM (VALUES (true), (false)) AS v(x) WHERE x = 't'
SELECT x FROM (VALUES (1), (2)) AS v(x) WHERE x = 1.0
SELECT x FROM (VALUES (1), (2)) AS v(x) WHERE x = 'a'
SELECT coalesce(x, 'none') FROM (VALUES ('a'), (NULL)) AS v(x) ORDER BY 1
SELECT coalesce(x, 'none') FROM (VALUES (1), (NULL)) AS v(x) ORDER BY 1
-- differs bigint
-- gives: = x int8 ; > 1 ; > 2
SELECT x FROM (VALUES (1), ('2')) AS v(x) ORDER BY x
SELECT x FROM (VALUES (1), ('a')) AS v(x)
SELECT x FROM (SELECT 1 AS x UNION ALL SELECT name FROM shop.items) AS t
SELECT CASE WHEN true THEN name ELSE 1 END FROM shop.items
SELECT name = 1 FROM shop.items
SELECT (1, 2) < (1, 3), (1, 2) >= (1, 2), (2, 1) > (1, 9), (1, 2) <> (1, 2)
SELECT (1, 'a') = (1, 'a'), (1, 2) = (1, NULL), (1, 2) <> (2, NULL)
SELECT id FROM shop.items WHERE (qty, id) > (7, 1) ORDER BY id
SELECT id FROM shop.items WHERE (id, name) = (2, 'pear')
SELECT '\x00ff'::bytea, 'a\\b'::bytea, 'a\101'::bytea
SELECT NULL::bytea, ''::bytea
SELECT 'a' ~ 'a.', E'a\nb' ~ 'a.b', E'a\nb' ~ '^b'
SELECT id FROM shop.items WHERE name = 1
SELECT id FROM shop.items WHERE id = name
SELECT id FROM shop.items WHERE name < 1.5
SELECT id FROM shop.items WHERE name <> true
SELECT id FROM shop.items WHERE day = name
SELECT id FROM shop.items WHERE at > name
SELECT name + 1 FROM shop.items
SELECT id FROM shop.items WHERE name LIKE 1
SELECT id FROM shop.items WHERE id = '1'
SELECT id FROM shop.items WHERE day = '2024-01-15'
