-- Aggregates and grouping.
SELECT sum(x) FROM (VALUES (9223372036854775807::bigint), (1::bigint)) AS v(x)
SELECT sum(x) FROM (VALUES (2147483647), (1)) AS v(x)
SELECT sum(x) FROM (VALUES (32767::smallint), (1::smallint)) AS v(x)
SELECT sum(x::bigint) FROM (VALUES (1), (2)) AS v(x)
SELECT avg(x) FROM (VALUES (1), (2)) AS v(x)
SELECT avg(x) FROM (VALUES (1::bigint), (2::bigint)) AS v(x)
SELECT avg(x) FROM (VALUES (1::smallint), (2::smallint), (2::smallint)) AS v(x)
-- differs quotient
-- gives: = avg numeric ; > 9223372036854775807.0000000000000000
SELECT avg(x) FROM (VALUES (9223372036854775807), (9223372036854775807)) AS v(x)
SELECT avg(x::float8), sum(x::float8) FROM (VALUES (1), (2)) AS v(x)
-- differs sum of real
-- gives: = sum float8 ; > 3
SELECT sum(x::real) FROM (VALUES (1), (2)) AS v(x)
SELECT avg(x::real) FROM (VALUES (1), (2)) AS v(x)
SELECT sum(DISTINCT x), avg(DISTINCT x), count(DISTINCT x) FROM (VALUES (1), (1), (2)) AS v(x)
SELECT sum(x) FILTER (WHERE x > 1), count(*) FILTER (WHERE x = 1) FROM (VALUES (1), (2), (3)) AS v(x)
SELECT sum(big) FROM shop.items
SELECT sum(qty), sum(small), sum(big) FROM shop.items WHERE id < 5
SELECT avg(qty) FROM shop.items WHERE id IN (1, 2)
SELECT avg(price) FROM shop.items WHERE id IN (1, 2)
SELECT count(*), count(name), count(DISTINCT kind) FROM shop.items
SELECT kind, count(*), sum(qty) FROM shop.items GROUP BY kind ORDER BY kind
SELECT kind, max(big) FROM shop.items GROUP BY kind ORDER BY 1
SELECT kind, sum(big) FROM shop.items GROUP BY kind ORDER BY kind
SELECT kind, count(*) FROM shop.items GROUP BY kind HAVING count(*) > 1 ORDER BY kind
SELECT kind AS k, count(*) FROM shop.items GROUP BY k ORDER BY k
SELECT kind, count(*) FROM shop.items GROUP BY 1 ORDER BY 2 DESC, 1
SELECT qty % 2, count(*) FROM shop.items WHERE qty >= 0 GROUP BY qty % 2 ORDER BY 1
SELECT kind, id FROM shop.items GROUP BY kind
SELECT kind, sum(qty) FROM shop.items WHERE id < 5 GROUP BY ROLLUP (kind) ORDER BY kind
SELECT kind, sold, count(*) FROM shop.items WHERE id < 6 GROUP BY CUBE (kind, sold) ORDER BY kind, sold
SELECT kind, sold, count(*) FROM shop.items WHERE id < 6 GROUP BY GROUPING SETS ((kind), (sold), ()) ORDER BY kind, sold
SELECT kind, grouping(kind), count(*) FROM shop.items WHERE id < 6 GROUP BY ROLLUP (kind) ORDER BY 2, 1
SELECT grouping(kind, sold), count(*) FROM shop.items WHERE id < 6 GROUP BY CUBE (kind, sold) ORDER BY 1, 2
SELECT item, sum(amount), sum(amount * price) FROM shop.sales GROUP BY item ORDER BY item
SELECT item, avg(amount) FROM shop.sales GROUP BY item ORDER BY item
SELECT item, min(day), max(day), count(*) FROM shop.sales GROUP BY item ORDER BY item
SELECT string_agg(name, ', ' ORDER BY id) FROM shop.items WHERE id < 4
SELECT array_agg(id ORDER BY id DESC) FROM shop.items WHERE id < 4
SELECT array_agg(name ORDER BY id) FROM shop.items WHERE id IN (1, 7, 8)
SELECT bool_and(x > 0), bool_or(x > 2) FROM (VALUES (1), (2), (3)) AS v(x)
SELECT count(*) FROM shop.items WHERE false
SELECT count(*) FROM shop.items HAVING count(*) > 100
SELECT 1 FROM shop.items HAVING count(*) > 1
SELECT max(name), min(name) FROM shop.items
SELECT max(NULL::int)
-- differs statistics
-- gives: = stddev float8|variance float8 ; > 1.5275252316519465|2.333333333333333
SELECT stddev(x), variance(x) FROM (VALUES (1), (2), (4)) AS v(x)
-- differs statistics
-- gives: = stddev_samp float8 ; > \N
SELECT stddev_samp(x) FROM (VALUES (1)) AS v(x)
-- refused 42883: functions
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY x) FROM (VALUES (1), (2), (4)) AS v(x)
-- refused 42883: functions
SELECT mode() WITHIN GROUP (ORDER BY x) FROM (VALUES (1), (2), (2)) AS v(x)
SELECT DISTINCT kind FROM shop.items ORDER BY kind
SELECT DISTINCT ON (kind) kind, id FROM shop.items ORDER BY kind, id DESC
SELECT DISTINCT sold, kind FROM shop.items WHERE id < 4 ORDER BY kind, sold
SELECT sum(x) / count(*) FROM (VALUES (1), (2)) AS v(x)
SELECT sum(x) * 1.0 / count(*) FROM (VALUES (1), (2)) AS v(x)
SELECT sum(x + 1), sum(x) + 1 FROM (VALUES (1), (2)) AS v(x)
SELECT count(*) * 2, count(*) / 2 FROM shop.items
SELECT sum(1), sum(1.5), max(1), min('a')
SELECT sum('a')
SELECT count(*) AS n FROM shop.items GROUP BY kind ORDER BY n DESC, 1 LIMIT 2
SELECT kind, count(*) FROM shop.items GROUP BY kind ORDER BY count(*) DESC, kind OFFSET 1 LIMIT 2
SELECT sum(sum(x)) FROM (VALUES (1)) AS v(x)
SELECT x, sum(y) FROM (VALUES (1, 2), (1, 3), (2, NULL)) AS v(x, y) GROUP BY x ORDER BY x
SELECT sum(big) FILTER (WHERE id = 1), sum(big) FILTER (WHERE id > 100) FROM shop.items
