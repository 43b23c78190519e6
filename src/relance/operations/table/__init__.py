"""Operations inside one table: indexes, tags, branches, columns, metadata, statistics, transactions."""
