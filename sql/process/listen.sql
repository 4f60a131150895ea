listen relay
