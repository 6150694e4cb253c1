def postage(total: float, kilograms: int) -> float:
    """Postage of an order: free from 200, a discount from 50 on heavy ones."""
    if total >= 200:
        return 0.0
    base = 4.9 if kilograms <= 1 else 6.25 if kilograms <= 2 else 11.25 if kilograms <= 5 else 17.5
    if 100 <= total < 200 and kilograms == 2:
        return 10.0
    return base
