select SearchPhrase, min(URL), min(Title), count(*) as c, count(distinct UserID) from hits
where Title like '%Google%' and URL not like '%.google.%' and SearchPhrase <> ''
group by SearchPhrase order by c desc limit 10;
