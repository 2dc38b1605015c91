"""What tests need to fold generated ledgers without Spark: facts, and views in memory."""
