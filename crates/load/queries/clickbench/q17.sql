select UserID, SearchPhrase, count(*) from hits group by UserID, SearchPhrase order by count(*) desc limit 10;
