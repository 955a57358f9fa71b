-- Whole numbers: types of constants, overflow, division, remainders.
SELECT 1
SELECT 2147483647
SELECT 2147483648
SELECT -2147483648
SELECT 9223372036854775807
SELECT 9223372036854775808
SELECT 1 + 1
SELECT 2147483647 + 1
SELECT 2147483647::bigint + 1
SELECT 9223372036854775807 + 1
SELECT -9223372036854775807 - 2
SELECT 9223372036854775807 * 2
SELECT 46341 * 46341
SELECT 300::smallint * 300::smallint
SELECT 30000::smallint + 30000::smallint
SELECT (-32768)::smallint - 1::smallint
SELECT -(-32768)::smallint
SELECT -((-32768)::smallint)
SELECT -((-2147483648)::int)
SELECT -((-9223372036854775808)::bigint)
SELECT abs(-5), abs(5), abs(0)
SELECT abs((-2147483648)::int)
SELECT abs((-9223372036854775808)::bigint)
SELECT abs((-32768)::smallint)
SELECT 7 / 2, -7 / 2, 7 / -2, -7 / -2
SELECT 7 % 2, -7 % 2, 7 % -2, -7 % -2
SELECT mod(7, 3), mod(-7, 3), mod(7, -3)
SELECT 1 / 0
SELECT 1 % 0
SELECT mod(1, 0)
SELECT 0 / 5
SELECT 1::bigint / 0
SELECT 1::smallint / 0::smallint
SELECT (-2147483648) / -1
SELECT (-2147483648)::int / (-1)
SELECT (-2147483648)::int % -1
SELECT (-9223372036854775808)::bigint / (-1)
SELECT 5 / 2 * 2
SELECT 2 + 3 * 4 - 5
SELECT (2 + 3) * 4
SELECT 2 - 3 - 4
SELECT 100 / 10 / 5
SELECT -2 * -3
SELECT 1::smallint + 1::int, 1::int + 1::bigint, 1::smallint + 1::bigint
SELECT 1::smallint + 1
SELECT 40000 + 1::smallint
SELECT 1 = 1, 1 <> 1, 1 < 2, 2 <= 2, 3 > 4, 4 >= 4
SELECT 1 = 1.0, 1 < 1.5
SELECT 5 & 3, 5 | 3, 5 # 3
-- refused 0A000: syntax
SELECT ~5
SELECT 1 << 4, 256 >> 3
SELECT a + b FROM (VALUES (2147483647, 1)) AS v(a, b)
SELECT a * b FROM (VALUES (2147483647, 2)) AS v(a, b)
SELECT a - b FROM (VALUES (-2147483648, 1)) AS v(a, b)
SELECT -a FROM (VALUES (-2147483648)) AS v(a)
SELECT a + 1 FROM (VALUES (9223372036854775807)) AS v(a)
SELECT a / b FROM (VALUES (1, 0)) AS v(a, b)
SELECT a / b FROM (VALUES (7, 2), (-7, 2)) AS v(a, b) ORDER BY a
SELECT a % b FROM (VALUES (7, 2), (-7, 2)) AS v(a, b) ORDER BY a
SELECT big + 1 FROM shop.items WHERE id = 1
SELECT small * small FROM shop.items WHERE id = 1
SELECT small * small FROM shop.items WHERE id = 4
SELECT qty + 1 FROM shop.items WHERE id = 5
SELECT -big FROM shop.items WHERE id = 1
SELECT abs(big) FROM shop.items WHERE id = 3
SELECT qty / small FROM shop.items WHERE id = 6
SELECT qty % 3 FROM shop.items WHERE id IN (1, 2, 6) ORDER BY id
-- refused 22003: conditions
SELECT id FROM shop.items WHERE qty + 1 > 5 AND id < 5 ORDER BY id
SELECT id FROM shop.items WHERE big > 9223372036854775806 ORDER BY id
SELECT sign(-5), sign(0), sign(7)
SELECT greatest(1, 5, 3), least(1, 5, 3)
-- differs bigint
-- gives: = gcd int8|lcm int8 ; > 6|12
SELECT gcd(12, 18), lcm(4, 6)
-- refused 42883: functions
SELECT div(7, 2)
-- differs bigint
-- gives: = factorial int8 ; > 120
SELECT factorial(5)
SELECT 10 ^ 2
-- differs double
-- gives: = ?column? float8 ; > 1.4142135623730951
SELECT 2 ^ 0.5
SELECT power(2, 10)
SELECT power(2::float8, 10::float8)
SELECT pow(2::float8, 0.5::float8)
-- differs double
-- gives: = sqrt float8|cbrt float8 ; > 4|3
SELECT sqrt(16::float8), cbrt(27::float8)
SELECT sqrt(-1::float8)
SELECT ln(0::float8)
SELECT ln(-1::float8)
SELECT log(100::float8), ln(1::float8), exp(0::float8)
SELECT |/ 25.0::float8
SELECT @ -5
SELECT 1 BETWEEN 0 AND 2, 5 NOT BETWEEN 0 AND 2
-- refused 42601: syntax
SELECT 2 BETWEEN 3 AND 1, 2 BETWEEN SYMMETRIC 3 AND 1
SELECT +5, - 5, -(-5)
SELECT 5::int8, 5::int4, 5::int2
-- refused 42883: functions
SELECT width_bucket(5.0::float8, 0, 10, 5)
SELECT ceil(2::float8), floor(-2.5::float8), ceiling(2.1::float8)
SELECT to_hex(255)
SELECT bit_and(x), bit_or(x), bit_xor(x) FROM (VALUES (12), (10)) AS v(x)
