select RegionID, count(distinct UserID) as u from hits group by RegionID order by u desc limit 10;
