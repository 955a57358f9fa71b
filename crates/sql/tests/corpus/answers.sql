-- Statements that answered otherwise than PostgreSQL, or were refused without being listed.

-- `sum` of int and smallint changes its type between passes of the planner
SELECT g FROM shop.r1 GROUP BY g HAVING sum(x) > 3 ORDER BY 1
SELECT sum(x) = 6 FROM shop.r1
SELECT g, coalesce(s, 0) FROM (SELECT g, sum(x) AS s FROM shop.r1 GROUP BY g) q WHERE s < 10 ORDER BY 1
SELECT sum(x) FROM shop.r1 UNION ALL SELECT 1 ORDER BY 1 DESC
SELECT id FROM shop.r1 WHERE x < (SELECT sum(x) FROM shop.r1) ORDER BY 1
SELECT greatest(sum(x), 0) FROM shop.r1

-- Precedence of IS [NOT] DISTINCT FROM
SELECT id FROM shop.r1 WHERE b IS DISTINCT FROM true AND x = 2 ORDER BY 1
SELECT id FROM shop.r1 WHERE x IS DISTINCT FROM 1 AND id > 1 ORDER BY 1

-- NOT IN, and IN used as a value, with NULL and with correlation
SELECT id FROM shop.r1 WHERE 9 NOT IN (SELECT x FROM shop.r1) ORDER BY 1
SELECT id FROM shop.r1 WHERE id NOT IN (SELECT x FROM shop.r1) OR id = 1 ORDER BY 1
SELECT id FROM shop.r1 WHERE NULLIF(id, id) NOT IN (SELECT id FROM shop.r1) ORDER BY 1
SELECT a.id FROM shop.r1 a WHERE a.id NOT IN (SELECT x FROM shop.r1 c WHERE c.g = a.g) ORDER BY 1
SELECT id FROM shop.r1 WHERE coalesce(id IN (SELECT x FROM shop.r1 WHERE x IS NULL), true) ORDER BY 1

-- USING and NATURAL joins: one column for both sides
SELECT k FROM shop.r2 a RIGHT JOIN shop.r3 c USING (k) ORDER BY 1
SELECT max(k) FROM shop.r2 a FULL JOIN shop.r3 c USING (k)
SELECT k FROM shop.r2 a JOIN shop.r3 c USING (k) WHERE k > 1
SELECT * FROM (SELECT id, k FROM shop.r2) a LEFT JOIN (SELECT k, v FROM shop.r3) c USING (k) ORDER BY 1, 2

-- ORDER BY … OFFSET without LIMIT in a subquery
SELECT id FROM (SELECT id FROM shop.r1 ORDER BY w OFFSET 3) q ORDER BY 1
SELECT sum(id) FROM (SELECT id FROM shop.r1 ORDER BY w OFFSET 3) q

-- Correlated aggregates over no rows
SELECT id FROM shop.r2 a WHERE EXISTS (SELECT count(*) FROM shop.r3 c WHERE c.k = a.k) ORDER BY 1
SELECT id FROM shop.r2 a WHERE 0 IN (SELECT count(*) FROM shop.r3 c WHERE c.k = a.k) ORDER BY 1
SELECT id, (SELECT count(*) IS NULL FROM shop.r3 c WHERE c.k = a.k) FROM shop.r2 a ORDER BY 1

-- Decimals beyond 38 digits
-- refused 22003: digits
SELECT 99999999999999999999999999999999999999 + 1
-- refused 22003: digits
SELECT d + 99999999999999999999999999999999 FROM shop.r1 WHERE id = 1
-- refused 22003: digits
SELECT 0.99999999999999999999999999999999999999 + 0.1

-- IS NOT DISTINCT FROM beside = on the same columns of a join
SELECT a.id, c.id FROM shop.r1 a JOIN shop.r1 c ON a.x IS NOT DISTINCT FROM c.x WHERE a.x = c.x ORDER BY 1, 2

-- ORDER BY of an expression: names are those of the input, an output name only stands alone
SELECT id, -x AS x FROM shop.r1 ORDER BY -x, id

-- Zones
SET timezone = 'Europe/Berlin'; SELECT to_timestamp(1711846800)
SET timezone = 'Europe/Berlin'; SELECT id FROM shop.r1 WHERE at > '2024-03-31 02:30:00' ORDER BY 1
SET timezone = 'Europe/Berlin'; SELECT (timestamp '2024-03-31 02:30:00')::timestamptz
SET timezone = 'Europe/Berlin'; SELECT id FROM shop.r1 WHERE at BETWEEN date '2024-01-02' AND date '2024-01-03' ORDER BY 1

-- Simplifications that forget NULL
SELECT id FROM shop.r1 WHERE NOT (x IN (1) AND x IN (2)) ORDER BY 1
SELECT id, x # x FROM shop.r1 ORDER BY 1

-- Times without seconds, and with T and Z
SELECT timestamp '2024-01-01 10:00'
SELECT id FROM shop.r1 WHERE at > '2024-01-01 10:00' ORDER BY 1

-- Parameters: the declared type, or the one that PostgreSQL infers, counts

-- Unary minus binds closer than ^
SELECT -2 ^ 2

-- A table alias equal to a column
SELECT id.x FROM shop.r1 id WHERE EXISTS (SELECT 1 FROM shop.r3 c WHERE c.id = id.x) ORDER BY 1

-- Two aggregates that differ by a cast only
SELECT sum(x), sum(x::bigint) FROM shop.r1

-- Quantified comparisons and IN over VALUES
SELECT id FROM shop.r1 WHERE id = ANY (SELECT x FROM shop.r1) ORDER BY 1
SELECT id FROM shop.r1 WHERE id IN (VALUES (1), (2)) ORDER BY 1

-- Windows
SELECT id, lead(x, NULL) OVER (ORDER BY id) FROM shop.r1 ORDER BY 1
SELECT DISTINCT ON (g) g, sum(x) OVER (PARTITION BY b) FROM shop.r1 ORDER BY g, id
