-- Set operations, joins, subqueries, LATERAL, WITH, LIMIT.
SELECT 1 UNION SELECT 2 ORDER BY 1
SELECT 1 UNION SELECT 1
SELECT 1 UNION ALL SELECT 1
-- differs decimals
-- gives: = ?column? numeric ; > 1.0 ; > 1.5
SELECT 1 UNION SELECT 1.5 ORDER BY 1
SELECT 1 UNION SELECT 2147483648 ORDER BY 1
SELECT 1 AS a UNION SELECT 'x'
SELECT 1 AS a UNION SELECT '5' ORDER BY 1
SELECT NULL UNION SELECT 1 ORDER BY 1
SELECT 'a' UNION SELECT 'b' ORDER BY 1 DESC
SELECT 1, 2 UNION SELECT 1
SELECT x FROM (VALUES (1), (2), (2), (3)) AS v(x) INTERSECT SELECT y FROM (VALUES (2), (2), (4)) AS w(y) ORDER BY 1
-- refused 0A000: sets
SELECT x FROM (VALUES (1), (2), (2), (2), (3)) AS v(x) INTERSECT ALL SELECT y FROM (VALUES (2), (2), (4)) AS w(y) ORDER BY 1
SELECT x FROM (VALUES (1), (2), (2), (3)) AS v(x) EXCEPT SELECT y FROM (VALUES (2)) AS w(y) ORDER BY 1
-- refused 0A000: sets
SELECT x FROM (VALUES (1), (2), (2), (2), (3)) AS v(x) EXCEPT ALL SELECT y FROM (VALUES (2), (3)) AS w(y) ORDER BY 1
SELECT x FROM (VALUES (NULL), (1)) AS v(x) INTERSECT SELECT y FROM (VALUES (NULL), (2)) AS w(y)
SELECT x FROM (VALUES (NULL), (1)) AS v(x) EXCEPT SELECT y FROM (VALUES (NULL::int)) AS w(y)
SELECT 1 UNION ALL SELECT 2 EXCEPT SELECT 2
(SELECT 1 UNION ALL SELECT 2) ORDER BY 1 DESC LIMIT 1
SELECT 1 UNION SELECT 2 INTERSECT SELECT 2 ORDER BY 1
SELECT id FROM shop.items WHERE id < 3 UNION SELECT item FROM shop.sales ORDER BY 1
SELECT id FROM shop.items EXCEPT SELECT item FROM shop.sales ORDER BY 1
SELECT id FROM shop.items INTERSECT SELECT item FROM shop.sales ORDER BY 1
SELECT qty FROM shop.items WHERE id < 3 UNION ALL SELECT big FROM shop.items WHERE id = 2 ORDER BY 1
SELECT i.name, s.amount FROM shop.items i JOIN shop.sales s ON s.item = i.id ORDER BY i.id, s.day
SELECT i.id, s.amount FROM shop.items i LEFT JOIN shop.sales s ON s.item = i.id AND s.amount > 3 WHERE i.id < 5 ORDER BY i.id, s.day
SELECT i.id, s.item FROM shop.items i RIGHT JOIN shop.sales s ON s.item = i.id ORDER BY s.item, s.day
SELECT i.id, s.item FROM shop.items i FULL JOIN shop.sales s ON s.item = i.id ORDER BY i.id, s.item, s.day
SELECT a.x, b.y FROM (VALUES (1), (2)) AS a(x) CROSS JOIN (VALUES (3), (4)) AS b(y) ORDER BY 1, 2
SELECT a.x, b.y FROM (VALUES (1), (2)) AS a(x), (VALUES (2), (3)) AS b(y) WHERE a.x < b.y ORDER BY 1, 2
SELECT * FROM (VALUES (1, 'a')) AS a(x, y) JOIN (VALUES (1, 'b')) AS b(x, z) USING (x)
SELECT * FROM (VALUES (1, 'a')) AS a(x, y) NATURAL JOIN (VALUES (1, 'b')) AS b(x, z)
SELECT * FROM (VALUES (1, 'a')) AS a(x, y) JOIN (VALUES (1, 'b')) AS b(x, z) ON a.x = b.x
SELECT a.x FROM (VALUES (1), (2)) AS a(x) JOIN (VALUES (1.0), (2.5)) AS b(y) ON a.x = b.y
SELECT (SELECT 1)
SELECT (SELECT x FROM (VALUES (1), (2)) AS v(x))
SELECT (SELECT x FROM (VALUES (1)) AS v(x) WHERE x > 1)
SELECT (SELECT max(id) FROM shop.items) + 1
SELECT id FROM shop.items WHERE id = (SELECT id FROM shop.items WHERE id < 3)
SELECT id FROM shop.items WHERE qty = (SELECT max(qty) FROM shop.items)
SELECT id FROM shop.items WHERE id IN (SELECT item FROM shop.sales) ORDER BY id
SELECT id FROM shop.items WHERE id NOT IN (SELECT item FROM shop.sales) ORDER BY id
SELECT id FROM shop.items i WHERE EXISTS (SELECT 1 FROM shop.sales s WHERE s.item = i.id) ORDER BY id
SELECT id FROM shop.items i WHERE NOT EXISTS (SELECT 1 FROM shop.sales s WHERE s.item = i.id) ORDER BY id
SELECT id, (SELECT sum(amount) FROM shop.sales s WHERE s.item = i.id) FROM shop.items i WHERE id < 4 ORDER BY id
SELECT id, (SELECT count(*) FROM shop.sales s WHERE s.item = i.id) FROM shop.items i WHERE id < 4 ORDER BY id
SELECT id, (SELECT count(*) + 1 FROM shop.sales s WHERE s.item = i.id) FROM shop.items i WHERE id < 4 ORDER BY id
SELECT id, (SELECT coalesce(sum(amount), 0) FROM shop.sales s WHERE s.item = i.id) FROM shop.items i WHERE id < 4 ORDER BY id
-- refused 42000: correlated
SELECT id, (SELECT amount FROM shop.sales s WHERE s.item = i.id) FROM shop.items i WHERE id = 4
-- refused 42000: correlated
SELECT id, (SELECT amount FROM shop.sales s WHERE s.item = i.id) FROM shop.items i WHERE id = 1
SELECT id FROM shop.items i WHERE qty > (SELECT avg(amount) FROM shop.sales s WHERE s.item = i.id) ORDER BY id
SELECT id FROM shop.items WHERE qty > ALL (SELECT amount FROM shop.sales WHERE item = 1) ORDER BY id
SELECT id FROM shop.items WHERE id = ANY (SELECT item FROM shop.sales) ORDER BY id
SELECT id FROM shop.items WHERE qty > ANY (SELECT amount FROM shop.sales WHERE item = 2) ORDER BY id
-- refused 0A000: correlated
SELECT x, (SELECT x + 1) FROM (VALUES (1), (2)) AS v(x) ORDER BY x
-- refused 0A000: correlated
SELECT v.x, l.y FROM (VALUES (1), (2)) AS v(x), LATERAL (SELECT v.x * 10 AS y) AS l ORDER BY 1
-- refused 0A000: correlated
SELECT i.id, l.amount FROM shop.items i, LATERAL (SELECT amount FROM shop.sales s WHERE s.item = i.id ORDER BY amount DESC LIMIT 1) l ORDER BY 1
SELECT i.id, l.n FROM shop.items i CROSS JOIN LATERAL (SELECT count(*) AS n FROM shop.sales s WHERE s.item = i.id) l WHERE i.id < 4 ORDER BY 1
SELECT i.id, l.amount FROM shop.items i LEFT JOIN LATERAL (SELECT amount FROM shop.sales s WHERE s.item = i.id AND amount > 3) l ON true WHERE i.id < 4 ORDER BY 1, 2
WITH a AS (SELECT 1 AS x), b AS (SELECT x + 1 AS y FROM a) SELECT * FROM a, b
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r ORDER BY n
WITH RECURSIVE r(n) AS (SELECT 1 UNION SELECT n % 3 + 1 FROM r) SELECT n FROM r ORDER BY n
WITH RECURSIVE r(n, f) AS (SELECT 1::bigint, 1::bigint UNION ALL SELECT n + 1, f * (n + 1) FROM r WHERE n < 10) SELECT max(f) FROM r
WITH RECURSIVE r(n, f) AS (SELECT 1::bigint, 1::bigint UNION ALL SELECT n + 1, f * (n + 1) FROM r WHERE n < 25) SELECT max(f) FROM r
SELECT id FROM shop.items ORDER BY id LIMIT 3 OFFSET 2
SELECT id FROM shop.items ORDER BY id LIMIT 0
SELECT id FROM shop.items ORDER BY id OFFSET 7
SELECT id FROM shop.items ORDER BY id LIMIT NULL OFFSET 6
SELECT id FROM shop.items ORDER BY id FETCH FIRST 2 ROWS ONLY
SELECT id FROM shop.items ORDER BY id FETCH FIRST ROW ONLY
-- refused 0A000: ties
SELECT amount FROM shop.sales ORDER BY amount DESC FETCH FIRST 2 ROWS WITH TIES
SELECT id FROM shop.items LIMIT -1
SELECT id AS a FROM shop.items WHERE id < 3 ORDER BY a DESC
SELECT id FROM shop.items WHERE id < 4 ORDER BY -id
SELECT id + 1 AS id FROM shop.items WHERE id < 3 ORDER BY id DESC
SELECT id FROM shop.items ORDER BY 2
SELECT nothing FROM shop.items
SELECT 1 FROM shop.nothing
SELECT nothing(1)
SELECT FROM shop.items WHERE id < 3
SELECT count(*) FROM (SELECT 1 UNION ALL SELECT 2) AS t
VALUES (1, 'a'), (2, 'b')
-- differs decimals
-- gives: = column1 numeric ; > 1.0 ; > 2.5
VALUES (1), (2.5) ORDER BY 1
-- refused 42601: syntax
TABLE shop.sales ORDER BY item, day LIMIT 1
-- refused 0A000: sample
SELECT id FROM shop.items TABLESAMPLE SYSTEM (1)
-- refused 0A000: sample
SELECT id FROM shop.items TABLESAMPLE BERNOULLI (100)
-- differs generate_series
-- gives: = x int8 ; > 1 ; > 2 ; > 3 ; > 4
SELECT x FROM generate_series(1, 4) AS g(x) ORDER BY x
-- differs generate_series
-- gives: = x int8 ; > 2 ; > 4
SELECT x FROM generate_series(4, 1, -2) AS g(x) ORDER BY x
-- differs generate_series
-- gives: = x int8 ; > 1 ; > 2 ; > 3
SELECT x FROM generate_series(1, 3) x ORDER BY x
-- differs generate_series
-- gives: = generate_series int8 ; > 1 ; > 2 ; > 3
SELECT generate_series(1, 3)
-- differs generate_series
-- gives: = sum numeric ; > 5050
SELECT sum(x) FROM generate_series(1, 100) AS g(x)
SELECT unnest(ARRAY[1, 2, 3])
SELECT x FROM unnest(ARRAY['b', 'a']) AS u(x) ORDER BY x
-- refused 0A000: syntax
SELECT x, n FROM unnest(ARRAY['b', 'a']) WITH ORDINALITY AS u(x, n) ORDER BY n
SELECT (ARRAY[1, 2, 3])[2], (ARRAY[1, 2, 3])[0], (ARRAY[1, 2, 3])[4]
SELECT (ARRAY[1, 2, 3])[2:3], array_length(ARRAY[1, 2], 1), cardinality(ARRAY[1, 2, 3])
SELECT ARRAY[1, 2] || ARRAY[3], ARRAY[1] || 2, array_append(ARRAY[1], 2), array_prepend(0, ARRAY[1])
SELECT ARRAY[1, 2] @> ARRAY[1], ARRAY[1] <@ ARRAY[1, 2], ARRAY[1, 2] && ARRAY[2, 3]
SELECT ARRAY[1, 2] = ARRAY[1, 2], ARRAY[1, 2] < ARRAY[1, 3]
SELECT array_position(ARRAY['a', 'b'], 'b'), array_remove(ARRAY[1, 2, 1], 1), array_length(ARRAY[]::int[], 1)
-- refused 42883: syntax
SELECT ARRAY(SELECT id FROM shop.items WHERE id < 4 ORDER BY id)
SELECT * FROM shop.sales WHERE item = 99
SELECT count(*) FROM shop.items i, shop.sales s
SELECT s.* FROM shop.sales s WHERE s.item = 4
SELECT sales.item FROM shop.sales WHERE sales.amount = 9
SELECT "id" FROM shop.items WHERE "id" = 1
SELECT ID FROM shop.items WHERE Id = 1
SELECT "ID" FROM shop.items
SELECT id AS "Odd Name" FROM shop.items WHERE id = 1
SELECT 1 AS a, 2 AS a
SELECT id, id FROM shop.items WHERE id = 1
SELECT 1 WHERE 1 = 1
SELECT 1 WHERE NULL
SELECT 1 WHERE 1
SELECT id FROM shop.items WHERE name
SELECT 'a' + 'b'
SELECT 1 + true
SELECT -'a'
SELECT NOT 1
SELECT sum(id) FROM shop.items WHERE sum(id) > 1
-- refused 25006: locks
SELECT id FROM shop.items ORDER BY id FOR UPDATE
-- refused 25006: locks
SELECT id INTO x FROM shop.items
